from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, ValidationError, model_validator

from dapo.complaints import explain
from dapo.frozen import Frozen


class Inner(Frozen):
    """A part."""

    size: int = Field(1, ge=1)
    """How large."""


class Cat(Frozen):
    """One choice."""

    type: Literal["cat"] = "cat"
    lives: int = Field(9, le=9)
    """How many."""
    inner: Inner = Inner()
    """A part of its own."""


class Dog(Frozen):
    """Another choice."""

    type: Literal["dog"] = "dog"
    name: str
    """What to call it."""

    @model_validator(mode="after")
    def _has_a_good_name(self) -> Dog:
        if self.name == "Cat":
            raise ValueError('name = "Cat" is no name for a dog; choose another')
        return self


class Root(Frozen):
    """Everything."""

    steps: int = Field(ge=1)
    """How often."""
    animal: Annotated[Cat | Dog, Field(discriminator="type")] = Cat()
    part: Inner = Inner()
    sizes: tuple[int, ...] = ()
    """Many of them."""
    top_p: int | None = None
    """A name that elsewhere gets a hint."""

    @model_validator(mode="after")
    def _fits(self) -> Root:
        if self.steps == 13:
            raise ValueError("steps = 13 brings bad luck. Use 12.")
        return self


def complaints(content: dict[str, Any]) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        Root.model_validate(content)
    return explain(refused.value, Root).splitlines()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ({"step": 1, "steps": 1}, "  - step: no such field. Did you mean 'steps'?"),
        ({"steps": 1, "zzz": 1}, "  - zzz: no such field. Known here: steps, animal, part, sizes, top_p."),
        ({}, "  - steps: is needed and not given."),
        ({"steps": 0}, "  - steps = 0: input should be greater than or equal to 1."),
        ({"steps": 1, "part": {"siz": 2}}, "  - part.siz: no such field. Did you mean 'size'?"),
        ({"steps": 1, "part": 7}, "  - part = 7: it is a table with fields of its own, such as [part] in the recipe."),
        (
            {"steps": 1, "animal": {"type": "cow"}},
            "  - animal.type: 'cow' is not known; it is one of 'cat', 'dog'.",
        ),
        ({"steps": 1, "animal": {}}, "  - animal.type is needed: one of 'cat', 'dog'."),
        ({"steps": 1, "animal": {"lives": 3}}, "  - animal.type is needed: one of 'cat', 'dog'."),
        (
            {"steps": 1, "animal": 3},
            "  - animal = 3: it is a table with fields of its own, such as [animal] in the recipe.",
        ),
        ({"steps": 1, "animal": {"type": "dog"}}, "  - animal.name: is needed and not given."),
        (
            {"steps": 1, "animal": {"type": "cat", "lives": 10}},
            "  - animal.lives = 10: input should be less than or equal to 9.",
        ),
        (
            {"steps": 1, "animal": {"type": "cat", "inner": {"sise": 1}}},
            "  - animal.inner.sise: no such field. Did you mean 'size'?",
        ),
        (
            {"steps": 1, "animal": {"type": "cat", "cat": 1}},
            "  - animal.cat: no such field. Known here: type, lives, inner.",
        ),
        (
            {"steps": 1, "animal": {"type": "dog", "name": "Cat"}},
            '  - animal: name = "Cat" is no name for a dog; choose another',
        ),
        ({"steps": 13}, "  - steps = 13 brings bad luck. Use 12."),
        (
            {"steps": 1, "sizes": [1, "x"]},
            "  - sizes = 'x': input should be a valid integer, unable to parse string as an integer.",
        ),
    ],
)
def test_a_fault_is_one_line_that_names_the_field_as_the_recipe_does(content: dict[str, Any], line: str) -> None:
    assert complaints(content) == [line]


def test_every_fault_has_its_line() -> None:
    lines = complaints({"steps": 0, "part": {"size": 0}, "extra": 1})
    assert [line.split()[1].rstrip(":") for line in lines] == ["steps", "part.size", "extra"]


def test_a_name_that_others_use_gets_a_hint() -> None:
    (line,) = complaints({"steps": 1, "part": {"top_k": 5}})
    assert "top-k is refused in training" in line and "[evaluation]" in line
    (line,) = complaints({"steps": 1, "animal": {"type": "cat", "lr": 5}})
    assert "the name is trainer.learning_rate" in line
    (line,) = complaints({"steps": 1, "animal": {"type": "cat", "kl_coef": 0.1}})
    assert "no KL term" in line


def test_a_long_value_is_cut() -> None:
    (line,) = complaints({"steps": "x" * 500})
    assert "..." in line and len(line) < 200
