"""Validation errors in words for a person: which field, what was given, what is allowed, what was perhaps meant."""

from __future__ import annotations

import difflib
import types
import typing
from typing import Any

from pydantic import BaseModel, ValidationError

_HINTS = {
    "top_p": "top-p is refused in training: its log-probabilities are of another distribution than the ratio's. It is a "
    "field of [evaluation].",
    "top_k": "top-k is refused in training: its log-probabilities are of another distribution than the ratio's. It is a "
    "field of [evaluation].",
    "lr": "the name is trainer.learning_rate",
    "kl_coef": "DAPO has no KL term",
}


def explain(error: ValidationError, root: type[BaseModel]) -> str:
    """Return one line a fault."""
    return "\n".join(f"  - {_line(item, root)}" for item in error.errors(include_url=False))


def _line(item: Any, root: type[BaseModel]) -> str:
    location = [str(part) for part in item["loc"]]
    kind, given = item["type"], item.get("input")
    section, path = _section(root, location)
    name = ".".join(path) or "the recipe"
    if kind == "extra_forbidden":
        known = list(section.model_fields) if section is not None else []
        close = difflib.get_close_matches(path[-1], known, n=1)
        meant = f" Did you mean {close[0]!r}?" if close else ""
        hint = f" ({_HINTS[path[-1]]})" if path[-1] in _HINTS else ""
        fields = f" Known here: {', '.join(known)}." if known and not close else ""
        return f"{name}: no such field.{meant}{hint}{fields}"
    if kind == "missing":
        return f"{name}: is needed and not given."
    if kind == "union_tag_invalid":
        return f"{name}.type: {item['ctx']['tag']!r} is not known; it is one of {item['ctx']['expected_tags']}."
    if kind == "union_tag_not_found":
        return f"{name}.type is needed: one of {', '.join(map(repr, _tags(root, location)))}."
    if kind in ("model_type", "model_attributes_type"):
        return f"{name} = {_short(given)}: it is a table with fields of its own, such as [{name}] in the recipe."
    if kind == "value_error":
        return str(item["ctx"]["error"]) if not path else f"{name}: {item['ctx']['error']}"
    return f"{name} = {_short(given)}: {item['msg'][0].lower()}{item['msg'][1:]}."


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _section(root: type[BaseModel], location: list[str]) -> tuple[type[BaseModel] | None, list[str]]:
    """Follow an error's location down the models; return the innermost one and the path without union tags."""
    model: type[BaseModel] | None = root
    path: list[str] = []
    choices: dict[str, type[BaseModel]] = {}
    for part in location:
        if part in choices:  # the tag of a union is part of pydantic's location and no part of the recipe's
            model, choices = choices[part], {}
            continue
        path.append(part)
        field = model.model_fields.get(part) if model is not None else None
        models = _models(field.annotation) if field is not None else []
        if field is not None and not models:
            return model, path
        if models:
            choices = {_tag(candidate): candidate for candidate in models if _tag(candidate)}
            model = models[0] if len(models) == 1 else None
    return model, path


def _tags(root: type[BaseModel], location: list[str]) -> list[str]:
    """The values of `type` among which the union at an error's location chooses."""
    section, _ = _section(root, location[:-1])
    field = section.model_fields.get(location[-1]) if section is not None else None
    return [tag for tag in map(_tag, _models(field.annotation)) if tag] if field is not None else []


def _tag(model: type[BaseModel]) -> str:
    field = model.model_fields.get("type")
    return str(field.default) if field is not None else ""


def _models(annotation: Any) -> list[type[BaseModel]]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        return [model for part in typing.get_args(annotation) for model in _models(part)]
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []
