from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from dapo.tasks.config import ArithmeticConfig, CustomConfig, JsonlConfig, ReasoningGymConfig, TaskConfig

ADAPTER: TypeAdapter[Any] = TypeAdapter(TaskConfig)


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        ({"type": "arithmetic", "operations": ["+"]}, ArithmeticConfig),
        ({"type": "jsonl", "path": "rows.jsonl"}, JsonlConfig),
        ({"type": "jsonl", "path": "rows.jsonl", "reward": "a:b"}, JsonlConfig),
        ({"type": "reasoning_gym", "name": "gcd"}, ReasoningGymConfig),
        ({"type": "custom", "path": "a:b", "options": {"x": [1]}}, CustomConfig),
    ],
)
def test_the_type_chooses_and_the_json_form_comes_back(table: dict[str, Any], kind: type) -> None:
    config = ADAPTER.validate_python(table)
    assert type(config) is kind
    assert ADAPTER.validate_json(ADAPTER.dump_json(config)) == config  # a run folder holds every field, defaults too


@pytest.mark.parametrize("kind", [ArithmeticConfig, JsonlConfig, ReasoningGymConfig, CustomConfig])
def test_every_setting_is_explained(kind: type[ArithmeticConfig]) -> None:
    for name, field in kind.model_fields.items():
        assert name == "type" or field.description, name


def test_unknown_types_and_settings_are_refused() -> None:
    with pytest.raises(ValidationError, match="maths"):
        ADAPTER.validate_python({"type": "maths"})
    with pytest.raises(ValidationError, match="trian"):
        ADAPTER.validate_python({"type": "arithmetic", "trian": 5})


def test_the_defaults_of_arithmetic() -> None:
    assert ArithmeticConfig().model_dump() == {
        "type": "arithmetic",
        "operations": ("+", "-", "*"),
        "max_sum_operand": 99,
        "max_left": 20,
        "max_right": 12,
        "allow_negative": False,
        "train": 2000,
        "held_out": 200,
        "data_seed": None,
        "system": None,
    }


def test_the_configs_are_read_without_what_is_heavy() -> None:
    code = (
        "import dapo.tasks.config, sys; heavy = {'torch', 'transformers', 'datasets', 'pyarrow', 'sympy', 'numpy', "
        "'reasoning_gym'}; print(sorted(heavy & set(sys.modules)), 'pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] True\n"
