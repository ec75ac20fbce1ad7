from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from dapo.engines.config import EngineConfig, HFConfig, NativeConfig


def parse(content: dict[str, Any]) -> HFConfig | NativeConfig:
    return TypeAdapter[HFConfig | NativeConfig](EngineConfig).validate_python(content)


def test_the_type_says_which_engine() -> None:
    assert parse({"type": "hf"}) == HFConfig(precision="auto", max_rows=128)
    assert parse({"type": "native", "max_rows": 4}) == NativeConfig(precision="auto", max_rows=4)


@pytest.mark.parametrize(
    "content",
    [
        {"type": "vlm"},
        {"max_rows": 4},
        {"type": "hf", "max_rows": 0},
        {"type": "hf", "precision": "float16"},
        {"type": "hf", "top_p": 0.9},
    ],
)
def test_what_no_engine_knows_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        parse(content)


def test_a_config_is_read_without_torch() -> None:
    script = (
        "import sys; from dapo.engines.config import HFConfig; HFConfig(); "
        "print(*sorted({'torch', 'transformers', 'numpy'} & sys.modules.keys()))"
    )

    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == ""
