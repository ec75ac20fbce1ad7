"""Finds an object by `my.module:name`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from dapo.errors import ConfigError


def load_object(path: str) -> Callable[..., Any]:
    """Import the module of `my.module:name` and return the callable of that name.

    The working directory is searched first, as `python -m` does. Raises ConfigError that tells the ways to fail apart:
    a path without a colon, no such module, a module that fails while it is imported, no such name, nothing to call.
    """
    module_name, colon, name = path.partition(":")
    if not colon or not name or not all(part.isidentifier() for part in module_name.split(".")):
        raise ConfigError(f"{path!r} does not name an object; write it as my.module:name, e.g. rewards.mine:score")
    module = _import(path, module_name)
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            close = get_close_matches(part, [known for known in dir(found) if not known.startswith("_")], n=1)
            hint = f"; did you mean {close[0]!r}?" if close else "; correct the name after the colon"
            raise ConfigError(f"{path!r}: {module_name} was imported, but it has no {part!r}{hint}")
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError(
            f"{path!r} is a {type(found).__name__} and cannot be called; name a function or a class instead"
        )
    return found


def _import(path: str, module_name: str) -> object:
    with _working_directory_first():
        try:
            return importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            missing = error.name or ""
            if missing == module_name or module_name.startswith(f"{missing}."):
                raise ConfigError(
                    f"{path!r}: there is no module {missing!r} among the installed packages or in the working "
                    f"directory {os.getcwd()}; correct the name before the colon or run from the folder that holds it"
                ) from error
            raise ConfigError(
                f"{path!r}: importing {module_name} failed because it needs the module {missing!r}, which is not "
                "installed; install it"
            ) from error
        except (Exception, SystemExit) as error:
            raise ConfigError(
                f"{path!r}: importing {module_name} raised {type(error).__name__}: {error}; "
                f"`python -c 'import {module_name}'` shows where"
            ) from error


@contextmanager
def _working_directory_first() -> Iterator[None]:
    """Search the working directory first during the import and last from then on.

    It stays on the path because the user's code may import more of its own modules later, but last, so that a file
    in it cannot take the place of an installed package that is imported then.
    """
    folder = os.getcwd()
    if folder in sys.path or "" in sys.path:
        yield
        return
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)
        sys.path.append(folder)
