"""The base of every config: frozen, and strict about names it does not know."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Frozen(BaseModel):
    """A description: read-only after it is made, and an unknown field is an error.

    Field docstrings become the descriptions that `dapo show` and the documentation print.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )

    @model_validator(mode="before")
    @classmethod
    def _true_is_no_number(cls, values: Any) -> Any:
        """Refuse true and false where a number is meant; pydantic would read them as 1 and 0."""
        if isinstance(values, Mapping):
            for name, value in values.items():
                field = cls.model_fields.get(name)
                if isinstance(value, bool) and field is not None and _is_number(field.annotation):
                    raise ValueError(f"{name} = {str(value).lower()} is not a number")
        return values


def _is_number(annotation: Any) -> bool:
    """Whether an annotation takes numbers and no booleans, e.g. `int`, `float | None`."""
    parts = typing.get_args(annotation) or (annotation,)
    return bool({int, float} & set(parts)) and bool not in parts
