from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import ValidationError

from dapo.reporting.config import ReportConfig


def test_the_defaults_show_progress_and_eight_replies_of_a_group() -> None:
    assert ReportConfig().model_dump() == {"console": True, "replies_in_report": 8}


@pytest.mark.parametrize("wrong", [{"replies_in_report": -1}, {"replies": 3}])
def test_wrong_fields_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        ReportConfig.model_validate(wrong)


def test_reporting_needs_no_torch() -> None:
    code = (
        "import sys, dapo.reporting.config, dapo.reporting.html, dapo.reporting.console, dapo.jsonlines;"
        "assert not {'torch', 'transformers', 'datasets'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
