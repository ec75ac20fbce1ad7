"""What a recipe or the command line may say about problem sets. Readable without torch, pyarrow or datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from dapo.data.findings import Kind
from dapo.data.templates import BARE, KEEP, TEMPLATES, is_template
from dapo.frozen import Frozen

LayoutName = Literal["auto", "plain", "dapo_math_17k", "aime", "math500", "gsm8k", "conversations"]


class SourceConfig(Frozen):
    """Where problems come from. A bare text stands for `{ path = ... }`, so one line of a recipe is enough."""

    path: str
    """A .jsonl, .json or .parquet file, a folder of them, or the id of a data set on the Hub (`owner/name`)."""
    reader: Literal["auto", "files", "hub"] = "auto"
    """How `path` is read. auto: as files if it exists, from the Hub otherwise. A local folder laid out as on the Hub
    (README.md, data/train-*.parquet) is read the Hub's way with `hub`."""
    split: str | None = None
    """The split of a Hub data set. None: `train`, or the only one there is."""
    subset: str | None = None
    """The configuration of a Hub data set. None: its default."""
    cache_folder: Path | None = None
    """Where `datasets` keeps what it downloads. None: its own default."""
    layout: LayoutName = "auto"
    """What the columns mean. auto: told from the columns, or an error that lists them."""
    prompt_column: str | None = None
    """The column with the problem, text or messages; a dot leads into a nested column. None: the layout's."""
    answer_column: str | None = None
    """The column with the answer, e.g. `reward_model.ground_truth`. None: the layout's."""
    id_column: str | None = None
    """The column with a name for the problem. None: the layout's; a row without one is named by file and row."""
    template: str = KEEP
    """The words around the problem. keep: as in the file; bare: without the DAPO wrapper; dapo or boxed: in that
    wrapper; or a text of your own with `{problem}` in it."""
    unique: bool = True
    """Whether rows that ask the same problem count once, so that an epoch is over problems and not over copies."""
    conflicts: Literal["drop", "error"] = "drop"
    """What happens to a problem that stands in the set with different answers (with `unique`): all its rows are left
    out and counted, or the set is refused. None of the answers is ever picked."""
    unusable: Literal["error", "skip"] = "error"
    """What happens to a row without a readable prompt or answer: the set is refused, or the row is left out
    and counted."""
    limit: int | None = Field(default=None, ge=1)
    """Take only the first so many problems. None: all."""

    @model_validator(mode="before")
    @classmethod
    def _path_alone(cls, value: Any) -> Any:
        return {"path": str(value)} if isinstance(value, str | Path) else value

    @model_validator(mode="after")
    def _template_is_known(self) -> SourceConfig:
        if not is_template(self.template):
            known = ", ".join([KEEP, BARE, *TEMPLATES])
            raise ValueError(
                f"template = {self.template!r} is none of {known} and has no {{problem}} in it; "
                "name one of them or write a text with {problem} where the problem goes"
            )
        if not self.path.strip():
            raise ValueError("path is empty; name a file, a folder or a Hub data set")
        return self


class CheckConfig(Frozen):
    """What a check looks for, and what a clean-up does about it."""

    answers: Literal["auto", "integer", "any"] = "auto"
    """What an answer must be. auto: an integer, unless the layout is MATH-500 or conversations."""
    max_prompt_tokens: int | None = Field(default=None, ge=1)
    """Prompts with more tokens are over the limit; the caller gives the function that counts. None: not looked at."""
    short_prompt: int = Field(default=40, ge=0)
    """A problem with fewer characters is named as short."""
    long_prompt: int = Field(default=2500, ge=1)
    """A problem with more characters is named as long."""
    similarity: float | None = Field(default=0.8, gt=0, le=1)
    """Jaccard similarity of word pairs from which two problems with the same numbers are near duplicates. None: only
    equal text is looked at."""
    evaluation: tuple[SourceConfig, ...] = ()
    """Evaluation sets whose problems must not be in this one."""
    overlap: float = Field(default=0.5, gt=0, le=1)
    """Share of an evaluation problem's runs of eight words from which a row counts as containing it."""
    keep: frozenset[Kind] = frozenset()
    """Kinds of findings that are only reported, whatever their policy is."""
    drop: frozenset[Kind] = frozenset()
    """Kinds of findings whose rows are dropped, whatever their policy is."""
    examples: int = Field(default=1000, ge=0)
    """How many findings of a kind the report holds; all are counted, and a clean-up writes all to its report file."""

    @model_validator(mode="after")
    def _one_action_each(self) -> CheckConfig:
        both = self.keep & self.drop
        if both:
            raise ValueError(f"keep and drop both name {', '.join(sorted(both))}; name each kind once")
        return self
