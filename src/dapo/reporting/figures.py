"""Which curves of a run are drawn, in which order, and what a reader should know about each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dapo.metrics import METRICS
from dapo.reporting.charts import PAGE, Look, Series, line_chart
from dapo.reporting.record import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One chart of metrics. `curves` maps labels to metric names; `hint` is the metric whose advice stands below,
    after `note` if there is one.

    An `optional` figure is left out of the report of a run that has none of its metrics.
    """

    title: str
    y_label: str
    curves: tuple[tuple[str, str], ...]
    hint: str
    note: str = ""
    percent: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Figures that answer one question."""

    question: str
    figures: tuple[Figure, ...]


_ACCURACY = Figure(
    title="Training accuracy",
    y_label="right replies",
    curves=(("before the filter", "reward/accuracy_all"), ("in groups kept", "reward/accuracy_kept")),
    hint="reward/accuracy_all",
    note="Read progress from all replies, before the filter: groups kept lie near 50% by construction.",
    percent=True,
)
_REWARD = Figure(title="Reward", y_label="mean of all replies", curves=(("reward", "reward/mean"),), hint="reward/mean")

SECTIONS: tuple[Section, ...] = (
    Section(question="Does it learn?", figures=(_ACCURACY, _REWARD)),
    Section(
        question="How does it write?",
        figures=(
            Figure(
                title="Response length",
                y_label="tokens",
                curves=(("mean", "length/mean"), ("longest", "length/max")),
                hint="length/mean",
            ),
            Figure(
                title="Truncated replies",
                y_label="of all replies",
                curves=(("truncated", "length/truncated"),),
                hint="length/truncated",
                percent=True,
            ),
        ),
    ),
    Section(
        question="Is it stable?",
        figures=(
            Figure(title="Entropy", y_label="nats", curves=(("entropy", "policy/entropy"),), hint="policy/entropy"),
            Figure(
                title="Mean probability",
                y_label="of drawn tokens",
                curves=(("probability", "policy/prob_mean"),),
                hint="policy/prob_mean",
            ),
            Figure(
                title="Clipped tokens",
                y_label="of trained tokens",
                curves=(("low", "policy/clip_low"), ("high", "policy/clip_high"), ("dual", "policy/clip_dual")),
                hint="policy/clip_high",
                percent=True,
            ),
            Figure(
                title="Gradient norm",
                y_label="before clipping",
                curves=(("norm", "optim/grad_norm"),),
                hint="optim/grad_norm",
            ),
            Figure(
                title="Engine against trainer",
                y_label="nats",
                curves=(("divergence", "mismatch/kl"),),
                hint="mismatch/kl",
                optional=True,
            ),
            Figure(
                title="Divergence from the reference",
                y_label="nats",
                curves=(("KL", "policy/kl"),),
                hint="policy/kl",
                optional=True,
            ),
            Figure(
                title="Explained variance of the critic",
                y_label="share",
                curves=(("explained", "value/explained_variance"),),
                hint="value/explained_variance",
                optional=True,
            ),
            Figure(
                title="Loss of the critic",
                y_label="loss",
                curves=(("loss", "value/loss"),),
                hint="value/loss",
                optional=True,
            ),
        ),
    ),
    Section(
        question="What does it cost?",
        figures=(
            Figure(
                title="Groups generated",
                y_label="groups",
                curves=(
                    ("kept", "sampling/groups_kept"),
                    ("all right", "sampling/groups_all_right"),
                    ("all wrong", "sampling/groups_all_wrong"),
                    ("surplus", "sampling/groups_surplus"),
                    ("error", "sampling/groups_error"),
                ),
                hint="sampling/groups_generated",
            ),
            Figure(
                title="Time by stage",
                y_label="seconds",
                curves=(
                    ("generate", "time/generate"),
                    ("grade", "time/grade"),
                    ("train", "time/train"),
                    ("sync", "time/sync"),
                    ("save", "time/save"),
                ),
                hint="time/generate",
                note="Generation is usually the longest stage.",
            ),
            Figure(
                title="Memory",
                y_label="GB",
                curves=(("peak", "memory/peak_gb"),),
                hint="memory/peak_gb",
                optional=True,
            ),
        ),
    ),
)


def shown_figures(section: Section, record: RunRecord) -> Iterator[Figure]:
    """Yield the figures of a section that the report of this run shows."""
    for figure in section.figures:
        if not figure.optional or any(record.has(metric) for _, metric in figure.curves):
            yield figure


def draw(figure: Figure, record: RunRecord, *, look: Look = PAGE) -> str:
    """Return a figure of one run as SVG."""
    series = [Series(name=label, points=record.values(metric)) for label, metric in figure.curves]
    return line_chart(series, figure.title, figure.y_label, percent=figure.percent, look=look)


def advice(figure: Figure) -> str:
    """Return what a reader should know: the note, and how a healthy curve looks, from the catalogue of metrics."""
    healthy = METRICS[figure.hint].healthy
    return f"{figure.note} Healthy: {healthy[0].lower()}{healthy[1:]}".strip().replace("`", "")
