"""What a recipe may say about reporting. `metrics.jsonl` and `report.html` are always written."""

from __future__ import annotations

from pydantic import Field

from dapo.frozen import Frozen


class ReportConfig(Frozen):
    """Where the numbers of a run go besides its folder."""

    console: bool = True
    """Show progress on the terminal: a bar, or one plain line a step where the output is no terminal."""

    replies_in_report: int = Field(default=8, ge=0)
    """How many replies of a group the report shows; it shows one group of the first, middle and last step."""
