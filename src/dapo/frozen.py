"""The base of every config: frozen, and strict about names it does not know."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


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
