"""`dapo show`: what a recipe resolves to."""

from __future__ import annotations

from dapo.cli.options import AsJson, Overrides, Recipe, print_json
from dapo.config import derived_numbers, load_config, remarks


def show(recipe: Recipe, override: Overrides = None, as_json: AsJson = False) -> None:
    """Print the resolved recipe, the numbers that follow from it, and what to know about it. Runs nothing."""
    config = load_config(recipe, override or [])
    content = config.model_dump(mode="json")
    numbers, notes = derived_numbers(config), remarks(config)
    if as_json:
        print_json({"config": content, "derived": numbers, "remarks": notes})
        return
    for line in _toml_lines(content, ""):
        print(line)
    print("\n# What follows from it")
    for name, number in numbers.items():
        print(f"#   {name}: {number:,}")
    for note in notes:
        print(f"# Note: {note}")


def _toml_lines(section: dict[str, object], prefix: str) -> list[str]:
    """Lay a config out as TOML; a field that is not set is shown as a comment."""
    lines = []
    for name, value in section.items():
        if not isinstance(value, dict):
            lines.append(f"# {name} is not set" if value is None else f"{name} = {_toml_value(value)}")
    for name, value in section.items():
        if isinstance(value, dict):
            lines += ["", f"[{prefix}{name}]", *_toml_lines(value, f"{prefix}{name}.")]
    return lines


def _toml_value(value: object) -> str:
    import json

    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)
