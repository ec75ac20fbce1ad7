"""An algorithm of your own, named in the recipe. No torch until `build`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, JsonValue

from dapo.algorithms.parts import CommonConfig
from dapo.errors import ConfigError, RequestError
from dapo.loading import load_object

if TYPE_CHECKING:
    from dapo.algorithms.value import Algorithm


class CustomConfig(CommonConfig):
    """A function or class of your own that returns an `Algorithm`: `make(config, max_tokens, **options)`.

    `config` is this section; its `judge()`, `penalise(max_tokens)` and `label_by_group(advantage)` give the usual pieces
    according to the fields below, so that an algorithm need only bring what is new in it.
    """

    type: Literal["custom"] = "custom"
    path: str
    """Where it is, as `my.module:thing`."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Handed to it as keyword arguments."""

    def build(self, max_tokens: int) -> Algorithm:
        """Call the user's maker. Raises ConfigError where it cannot be loaded, does not take the options, raises, or returns
        something else."""
        from dapo.algorithms.value import Algorithm

        make: Any = load_object(self.path)
        try:
            made = make(self, max_tokens, **self.options)
        except RequestError:
            raise
        except Exception as error:
            raise ConfigError(
                f"algorithm.path = {self.path!r}, called as make(config, {max_tokens}, **{self.options}), raised "
                f"{type(error).__name__}: {error}; correct the maker or algorithm.options"
            ) from error
        if not isinstance(made, Algorithm):
            raise ConfigError(
                f"algorithm.path = {self.path!r} returned {type(made).__name__}, not a dapo.algorithms.value.Algorithm. "
                "Return the value that the loop and the trainer are to be handed."
            )
        return made
