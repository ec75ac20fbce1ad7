"""What a recipe's `[task]` table may say. Readable without torch; `build` imports the implementation.

Every config has `check`, which refuses what can be seen before a model is loaded, and `build(seed)`, which makes the
task.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, JsonValue, model_validator

from dapo.data.config import SourceConfig
from dapo.errors import DataError
from dapo.frozen import Frozen
from dapo.verifiers.config import VerifierConfig

if TYPE_CHECKING:
    from dapo.ports import Task

Operation = Literal["+", "-", "*"]
Operand = Annotated[int, Field(ge=0, le=10**9)]


class ArithmeticConfig(Frozen):
    """Integer arithmetic made from a seed; training and held-out problems never share a pair of operands."""

    type: Literal["arithmetic"] = "arithmetic"
    operations: Annotated[tuple[Operation, ...], Field(min_length=1)] = ("+", "-", "*")
    """The operations, in equal shares; one with too few problems gives all it has and the others fill up."""
    max_sum_operand: Operand = 99
    """The largest operand of + and -; the smallest is 0."""
    max_left: Operand = 20
    """The largest left factor of a product; the smallest is 0."""
    max_right: Operand = 12
    """The largest right factor of a product; the smallest is 0."""
    allow_negative: bool = False
    """Whether a difference may be below 0."""
    train: int = Field(default=2000, ge=1, le=1_000_000)
    """How many training problems; each occurs once an epoch."""
    held_out: int = Field(default=200, ge=0, le=100_000)
    """How many problems are kept from training for evaluation, in equal shares of the operations."""
    data_seed: int | None = None
    """The seed that draws the problems. None: the run's seed, so that another run has other problems."""
    system: str | None = None
    """A system message to put before each question."""

    @model_validator(mode="after")
    def _operations_are_different(self) -> ArithmeticConfig:
        if len(set(self.operations)) < len(self.operations):
            raise ValueError(f"operations = {list(self.operations)} names one twice; name each once")
        return self

    def check(self) -> None:
        """Raise ConfigError if fewer problems exist than are asked for."""
        self.build(seed=0)

    def build(self, seed: int) -> Task:
        """Draw the problems. Raises ConfigError if fewer exist than are asked for."""
        from dapo.tasks import arithmetic

        return arithmetic.build(self, seed)


class JsonlConfig(Frozen):
    """Problems of your own: one JSON object a line, with a prompt and an answer."""

    type: Literal["jsonl"] = "jsonl"
    path: Path
    """The file, UTF-8; a relative path starts at the working directory."""
    held_out_path: Path | None = None
    """A second file whose rows are all held out. None: rows of `path` are drawn for it."""
    held_out: int | None = Field(default=None, ge=0)
    """How many rows of `path` are drawn, by the seed, to be held out. None: a tenth of them, at most 200."""
    data_seed: int | None = None
    """The seed that draws the held-out rows. None: the run's seed."""
    prompt_column: str = "prompt"
    """The column with the question: text, or a list of `{"role", "content"}` messages."""
    answer_column: str = "answer"
    """The column with the answer: text or an integer."""
    id_column: str = "id"
    """The column with a name for the problem; a row without it is named by its line."""
    match: Literal["integer", "exact"] | None = None
    """How a reply is compared with the answer: `integer`, the integer it ends on, or `exact`, its whole text. None:
    `integer`, unless `reward` scores."""
    reward: str | None = None
    """Your own function to score with instead, as `my.module:function`."""
    reward_seconds: float = Field(default=60.0, gt=0)
    """How long `reward` may take for one reply; one that takes longer is wrong, and counted in `reward/errors`. If it is
    `async`, the time counts from when any of its calls last ended."""
    system: str | None = None
    """A system message to put before each prompt."""

    @model_validator(mode="after")
    def _one_choice_each(self) -> JsonlConfig:
        if self.reward is not None and self.match is not None:
            raise ValueError(
                f"match = {self.match!r} and reward = {self.reward!r} both say how a reply is scored; keep one of them"
            )
        if self.held_out_path is not None and self.held_out is not None:
            raise ValueError(
                f"held_out = {self.held_out} draws rows of path, but held_out_path = {str(self.held_out_path)!r} "
                "already holds the held-out rows; keep one of them"
            )
        return self

    def check(self) -> None:
        """Raise DataError for a file or a row that cannot serve, and ConfigError for a reward that cannot be loaded."""
        from dapo.tasks import jsonl

        jsonl.read(self, seed=0)

    def build(self, seed: int) -> Task:
        """Read the files. Raises what `check` raises."""
        from dapo.tasks import jsonl

        return jsonl.build(self, seed)


class MathConfig(Frozen):
    """Mathematics problems from a file or the Hub, graded by a verifier."""

    type: Literal["math"] = "math"
    data: SourceConfig
    """The problems to train on: `data = "dapo-math-17k.parquet"` is enough where the layout can be told."""
    held_out: SourceConfig | None = None
    """The problems to be measured on, e.g. an AIME file. None: evaluation must be off."""
    verifier: VerifierConfig = VerifierConfig()
    """How answers are graded."""
    system: str | None = None
    """A system message to put before each problem."""

    def check(self) -> None:
        """Raise DataError for a local file that is not there."""
        sources = [source for source in (self.data, self.held_out) if source is not None and source.reader != "hub"]
        for source in sources:
            if _looks_like_file(source.path) and not Path(source.path).exists():
                raise DataError(f"the data {source.path} is not there; check the path")

    def build(self, seed: int) -> Task:
        """Open the data. Raises DataError for a row that cannot serve."""
        from dapo.tasks import mathematics

        return mathematics.build(self)


def _looks_like_file(path: str) -> bool:
    return path.startswith(("/", "./", "../", "~")) or path.endswith((".jsonl", ".json", ".parquet"))


class ReasoningGymConfig(Frozen):
    """Problems of one generator of the package reasoning-gym, scored by its own scorer."""

    type: Literal["reasoning_gym"] = "reasoning_gym"
    name: str
    """The generator, e.g. `chain_sum`."""
    size: int = Field(default=1000, ge=1, le=1_000_000)
    """How many training problems; no two are the same."""
    held_out: int = Field(default=100, ge=0, le=100_000)
    """How many problems are kept from training for evaluation."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """The generator's own settings, e.g. `{ max_terms = 3 }`."""
    data_seed: int | None = None
    """The seed that makes the problems. None: the run's seed, so that another run has other problems."""
    extract: Literal["whole", "last_line", "answer_tag"] = "whole"
    """What the scorer sees: the whole reply, its last line that is not blank, or the text of its last <answer> tag."""
    partial_credit: bool = False
    """Whether a score s between 0 and 1 gives the reward 2s - 1; otherwise 1 gives +1 and everything below gives -1."""
    score_seconds: float = Field(default=2.0, gt=0, le=600)
    """How long the scorer may think about one reply before it counts as wrong."""
    system: str | None = None
    """A system message to put before each question."""

    def check(self) -> None:
        """Raise ConfigError if the package, the generator or one of its options is missing. Takes some seconds."""
        from dapo.tasks import reasoning_gym

        reasoning_gym.check(self)

    def build(self, seed: int) -> Task:
        """Make the problems. Raises what `check` raises, and ConfigError if the generator has too few problems."""
        from dapo.tasks import reasoning_gym

        return reasoning_gym.build(self, seed)


class CustomConfig(Frozen):
    """A task of your own: a class with `train_problems`, `held_out_problems` and `async score`."""

    type: Literal["custom"] = "custom"
    path: str
    """Where it is, as `my.module:MyTask`; the working directory is searched too."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """The keyword arguments it is made with. One named `seed` gets the run's seed unless it is given here."""

    def check(self) -> None:
        """Raise ConfigError if it cannot be imported or does not take the options."""
        from dapo.tasks import custom

        custom.check(self)

    def build(self, seed: int) -> Task:
        """Make the task. Raises ConfigError if it cannot be imported or made, or is no task."""
        from dapo.tasks import custom

        return custom.build(self, seed)


TaskConfig = Annotated[
    ArithmeticConfig | JsonlConfig | MathConfig | ReasoningGymConfig | CustomConfig,
    Field(discriminator="type"),
]
"""One of the tasks, told apart by its `type`."""
