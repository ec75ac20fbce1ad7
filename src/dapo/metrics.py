"""The catalogue of metrics: what each name in `metrics.jsonl` measures, and how a healthy curve looks.

`python -m dapo.metrics` prints the catalogue as Markdown; `docs/metrics.md` is that output.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number of a step. `name` is `prefix/what`; `healthy` says what to expect and what to do otherwise."""

    name: str
    meaning: str
    healthy: str
    unit: str

    @property
    def prefix(self) -> str:
        """The part before the slash, e.g. `reward`."""
        return self.name.partition("/")[0]


PREFIXES: Mapping[str, str] = MappingProxyType(
    {
        "reward": "What the task thought of the replies. Taken over every reply that was generated in the step, before "
        "dynamic sampling drops a group; with `kept` in the name, over the groups trained on, carried ones among them.",
        "length": "How long the replies were, in tokens. Taken over the same replies as `reward/`.",
        "policy": "The policy on the tokens that it is trained on, at the sampling temperature. Means are over tokens.",
        "advantage": "What the loss is weighted by.",
        "sampling": "What generation cost and what became of the groups. A group is all replies to one prompt. In every "
        "step, `groups_generated` + `groups_carried_in` = `groups_kept` + `groups_all_right` + `groups_all_wrong` + "
        "`groups_surplus` + `groups_stale` + `groups_error` + `groups_carried_out`, and `tokens_generated` + "
        "`tokens_carried_in` = `tokens_kept` + `tokens_wasted` + `tokens_carried_out`; so over a run every generated token "
        "was either kept or wasted.",
        "prompts": "What the memory of prompts knows and does (`prompt_memory.enabled`); not there without it.",
        "tokens": "How much of what was generated reached the loss.",
        "optim": "The optimizer.",
        "time": "Where the wall-clock time of a step went.",
        "memory": "Memory of the trainer.",
        "mismatch": "How far the engine that draws the tokens and the trainer that learns from them disagree about the "
        "same weights. Two implementations, or two precisions, never agree fully.",
        "value": "The critic. PPO alone has one.",
    }
)

_ALL = (
    # reward
    Metric(
        name="reward/mean",
        meaning="Mean shaped reward: the sum of the named parts, such as correctness and length penalty.",
        healthy="Rises, noisily. With rewards of +1 and -1 and no penalty it is 2 x accuracy - 1. If it rises while "
        "`reward/accuracy_all` does not, the policy is learning the length penalty or a hole in the scorer: read "
        "replies. A rising training reward alone says little about held-out accuracy.",
        unit="reward",
    ),
    Metric(
        name="reward/std",
        meaning="Standard deviation of the shaped reward over the same replies.",
        healthy="About 1 at half accuracy with rewards of +1 and -1. Near 0 all replies score alike and there is "
        "nothing to learn.",
        unit="reward",
    ),
    Metric(
        name="reward/accuracy_all",
        meaning="Share of right replies among all that were graded, before the filter: the honest training curve.",
        healthy="Rises. Flat at 0: problems too hard, replies truncated, or a scorer that does not see the answer; "
        "read replies. Near 1: problems too easy, few groups survive the filter. Each step has other problems, so it "
        "is noisy: judge by the held-out curve.",
        unit="share",
    ),
    Metric(
        name="reward/accuracy_kept",
        meaning="Share of right replies in the groups that were trained on, after the filter.",
        healthy="Biased towards 0.5 by construction: all-right and all-wrong groups are gone. Do not read progress "
        "from it. Near 1/G or 1 - 1/G the surviving groups are lopsided.",
        unit="share",
    ),
    Metric(
        name="reward/mean_kept",
        meaning="Mean shaped reward in the groups that were trained on, after the filter.",
        healthy="Near 0 with rewards of +1 and -1, by construction, as `reward/accuracy_kept` is near 0.5.",
        unit="reward",
    ),
    Metric(
        name="reward/disagreement",
        meaning="Share of replies on which the verifier that only watches disagrees with the one that rewards.",
        healthy="Steady. Read the replies marked `disagrees` in rollouts/: one of the two verifiers is wrong there.",
        unit="share",
    ),
    Metric(
        name="reward/errors",
        meaning="Replies for which the scorer itself failed or ran out of time; they count as wrong.",
        healthy="0. Any steady number is a fault in the scorer, and teaches the policy that right answers are wrong.",
        unit="replies",
    ),
    # length
    Metric(
        name="length/mean",
        meaning="Mean number of tokens of a reply, the end token among them.",
        healthy="May grow slowly on problems that need reasoning, and shrink on easy ones. A sudden rise without a "
        "rise in accuracy is padding or repetition; a collapse to a few tokens is guessing.",
        unit="tokens",
    ),
    Metric(
        name="length/mean_kept",
        meaning="Mean number of tokens of a reply in the groups that were trained on, after the filter.",
        healthy="Above `length/mean` where hard problems are long and easy ones are filtered out.",
        unit="tokens",
    ),
    Metric(
        name="length/max",
        meaning="Longest reply.",
        healthy="At the limit on new tokens as soon as one reply is truncated; see `length/truncated`.",
        unit="tokens",
    ),
    Metric(
        name="length/truncated",
        meaning="Share of replies that the limit on new tokens ended, by finish reason.",
        healthy="Below 0.1, that is 10%. Above: raise `max_tokens`, since a truncated reply mostly counts as wrong "
        "although the reasoning may be sound. Near 1 the reward is all wrong and nothing is learnt. Rising during "
        "training: turn on the soft overlong punishment, and look for repetition.",
        unit="share",
    ),
    # policy
    Metric(
        name="policy/entropy",
        meaning="Mean entropy of the next-token distribution: how open the policy still is.",
        healthy="Falling slowly is normal. Below 0.1 early in a run is collapse: the replies of a group become alike "
        "and fewer groups survive; raise the upper clip bound or lower the learning rate. DAPO's paper finds a slow "
        "upward trend conducive. Rising without bound, above about 1 and with accuracy falling, is a fault seen under "
        "clip-higher: lower the upper clip bound.",
        unit="nats",
    ),
    Metric(
        name="policy/prob_mean",
        meaning="Mean probability that the policy gave to the tokens it drew.",
        healthy="The mirror of entropy. Rising slowly is normal; above 0.95 early in a run is collapse.",
        unit="probability",
    ),
    Metric(
        name="policy/ratio_mean",
        meaning="Mean importance ratio: probability now over probability when the update's old log-probs were taken.",
        healthy="1 within about 0.01. Exactly 1 with one update a rollout step; then no clip can act.",
        unit="ratio",
    ),
    Metric(
        name="policy/ratio_max",
        meaning="Largest importance ratio of one token.",
        healthy="Up to a few units is common with many updates a rollout step. Above 10: the policy has moved too far "
        "from the one that drew the tokens; fewer updates a step or a lower learning rate.",
        unit="ratio",
    ),
    Metric(
        name="policy/clip_low",
        meaning="Share of tokens whose ratio fell below the lower bound with a negative advantage; they give no "
        "gradient.",
        healthy="0 to about 0.01, that is 1%. Exactly 0 with one update a rollout step. Above 0.1 much of the batch is "
        "wasted: fewer updates a step or a lower learning rate.",
        unit="share",
    ),
    Metric(
        name="policy/clip_high",
        meaning="Share of tokens whose ratio rose above the upper bound with a positive advantage; they give no "
        "gradient.",
        healthy="0 to about 0.01, that is 1%. It is where unlikely tokens are held back: if it is well above "
        "`policy/clip_low` while entropy falls, a higher upper bound (clip-higher) helps. Above 0.1: fewer "
        "updates a step.",
        unit="share",
    ),
    Metric(
        name="policy/clip_dual",
        meaning="Share of tokens with a negative advantage whose ratio exceeded the dual-clip bound.",
        healthy="0, or next to it. A safety net: if it acts often, the updates are too large.",
        unit="share",
    ),
    Metric(
        name="policy/kl",
        meaning="Estimated divergence of the policy from the reference model, per token. Only where the algorithm asks "
        "for one; DAPO does not.",
        healthy="Grows from 0 and levels off. A jump is an update that was too large.",
        unit="nats",
    ),
    Metric(
        name="policy/chosen",
        meaning="Share of tokens that the algorithm treats apart: Clip-Cov stops their gradient, KL-Cov makes them pay for "
        "moving. Only with these two.",
        healthy="KL-Cov: the recipe's share. Clip-Cov: at most that; less where few tokens lie within its bounds. 0: a step "
        "has too few tokens for the share to make one; raise it.",
        unit="share",
    ),
    Metric(
        name="advantage/mean_abs",
        meaning="Mean size of the advantage over what was trained on.",
        healthy="Between about 0.45 and 1 where rewards are right or wrong and the advantage is divided by the "
        "group's standard deviation (groups of 16). 0 means there is no signal at all.",
        unit="advantage",
    ),
    # sampling
    Metric(
        name="sampling/groups_generated",
        meaning="Groups generated in this step, whatever became of them.",
        healthy="The batch size, where nothing is filtered. With dynamic sampling, up to about three times that; more says"
        " that problems are too easy or too hard.",
        unit="groups",
    ),
    Metric(
        name="sampling/groups_carried_in",
        meaning="Groups that the step before left to this one.",
        healthy="0 without `max_staleness`. Otherwise a small part of the batch size.",
        unit="groups",
    ),
    Metric(
        name="sampling/groups_kept",
        meaning="Groups trained on: those with right and wrong replies, generated in this step or carried into it, and "
        "those that top it up.",
        healthy="The batch size. Fewer: a cap ended the search, and this step learnt from less.",
        unit="groups",
    ),
    Metric(
        name="sampling/groups_top_up",
        meaning="Of those trained on, groups without a signal that fill a step that is short (`when_short` = `top_up`).",
        healthy="0. Otherwise the problems are too easy or too hard, and the step learns from less than its size says.",
        unit="groups",
    ),
    Metric(
        name="sampling/groups_all_right",
        meaning="Groups dropped because every reply was right.",
        healthy="Rises as the policy learns. When it is most of what is generated, bring harder problems.",
        unit="groups",
    ),
    Metric(
        name="sampling/groups_all_wrong",
        meaning="Groups dropped because every reply was wrong.",
        healthy="Falls as the policy learns. When it stays most of what is generated: easier problems, more replies per "
        "group, or more `max_tokens`; check the scorer on a few replies.",
        unit="groups",
    ),
    Metric(
        name="sampling/groups_surplus",
        meaning="Groups dropped that could have been trained on, because the step was full.",
        healthy="Small against `sampling/groups_kept`. Large: lower `oversample`, or carry them by `max_staleness`.",
        unit="groups",
    ),
    Metric(
        name="sampling/groups_carried_out",
        meaning="Groups left to the next step: generated beyond the batch size, or waiting for a step that can be filled.",
        healthy="0 without `max_staleness`. Growing from step to step: lower `oversample`.",
        unit="groups",
    ),
    Metric(
        name="sampling/groups_stale",
        meaning="Groups dropped because the policy had moved on too far since they were generated.",
        healthy="0, or next to it. Otherwise raise `max_staleness` or lower `oversample`.",
        unit="groups",
    ),
    Metric(
        name="sampling/groups_error",
        meaning="Groups dropped because the engine failed on a reply.",
        healthy="0.",
        unit="groups",
    ),
    Metric(
        name="sampling/rounds",
        meaning="Groups generated in rounds of the batch size times `oversample`, rounded up.",
        healthy="1 to 3. Rising towards the limit: the share of useful problems is shrinking.",
        unit="rounds",
    ),
    Metric(
        name="sampling/replies_generated",
        meaning="Replies generated in this step, trained on or not.",
        healthy="`sampling/groups_generated` times the group size.",
        unit="replies",
    ),
    Metric(
        name="sampling/tokens_generated",
        meaning="Reply tokens generated in this step, trained on or not.",
        healthy="Compare with `sampling/tokens_kept`: the difference is the price of dynamic sampling.",
        unit="tokens",
    ),
    Metric(
        name="sampling/tokens_kept",
        meaning="Reply tokens of the groups trained on in this step.",
        healthy="Most of `sampling/tokens_generated`. Not all of them train where truncated replies are masked: see "
        "`tokens/trained`.",
        unit="tokens",
    ),
    Metric(
        name="sampling/tokens_wasted",
        meaning="Reply tokens of groups dropped in this step, for whatever reason.",
        healthy="Below `sampling/tokens_kept`. Above: most of the time goes into groups without a signal; bring problems "
        "of other difficulty.",
        unit="tokens",
    ),
    Metric(
        name="sampling/tokens_carried_in",
        meaning="Reply tokens of the groups that the step before left to this one.",
        healthy="0 without `max_staleness`.",
        unit="tokens",
    ),
    Metric(
        name="sampling/tokens_carried_out",
        meaning="Reply tokens of the groups left to the next step.",
        healthy="0 without `max_staleness`.",
        unit="tokens",
    ),
    Metric(
        name="sampling/prompts_dropped",
        meaning="Prompts passed over so far because they are longer than batch.max_prompt_tokens (overlong_prompts = drop).",
        healthy="A small share of sampling/prompts_drawn; otherwise raise the limit.",
        unit="prompts",
    ),
    Metric(
        name="sampling/prompts_drawn",
        meaning="Position in the stream of prompts: prompts drawn since the run began. Cumulative.",
        healthy="Grows by `sampling/groups_generated` a step, and by the prompts that were passed over.",
        unit="prompts",
    ),
    Metric(
        name="sampling/epoch",
        meaning="Passes over the training problems so far: prompts drawn / number of problems.",
        healthy="Grows steadily. Above about 10 on a small set, watch held-out accuracy for memorising.",
        unit="passes",
    ),
    # prompts
    Metric(
        name="prompts/remembered",
        meaning="Problems that the memory holds something of: drawn, and not yet faded.",
        healthy="Rises over the first epoch, then levels off.",
        unit="problems",
    ),
    Metric(
        name="prompts/retired",
        meaning="Remembered problems that are not drawn for now, because a mixed group is unlikely: solved or hopeless.",
        healthy="Grows as the policy learns. Near `prompts/remembered`: little is left to learn from these problems; bring "
        "others.",
        unit="problems",
    ),
    Metric(
        name="prompts/fresh",
        meaning="Prompts of this step that the memory held nothing of.",
        healthy="All of them at first, then fewer. 0 once every problem has been drawn.",
        unit="prompts",
    ),
    Metric(
        name="prompts/mean_mixed_chance",
        meaning="What the memory promised: the mean chance of a mixed group over the prompts of this step.",
        healthy="Near the share of groups that were neither all right nor all wrong. Far above it for long: the policy moves "
        "faster than the memory fades; lower `prompt_memory.half_life`.",
        unit="probability",
    ),
    # tokens
    Metric(
        name="tokens/trained",
        meaning="Tokens that entered the loss in this step.",
        healthy="Follows `length/mean` x replies trained on. Smaller where truncated replies are masked.",
        unit="tokens",
    ),
    # optim
    Metric(
        name="optim/loss",
        meaning="Value of the training loss, mean over the step's updates.",
        healthy="Near 0, either sign. It is no measure of progress: the advantages of a group sum to 0. Not a number: "
        "stop and lower the learning rate.",
        unit="loss",
    ),
    Metric(
        name="optim/grad_norm",
        meaning="Norm of the gradient before clipping, mean over the step's updates.",
        healthy="Steady, of order 0.1 to 1 for language models. Rising by tens over some steps comes before a "
        "collapse: lower the learning rate. 0 means that nothing is learnt.",
        unit="norm",
    ),
    Metric(
        name="optim/lr",
        meaning="Learning rate of the step's last update.",
        healthy="As the schedule says: linear warm-up, then constant in DAPO's recipe.",
        unit="learning rate",
    ),
    Metric(
        name="optim/skipped",
        meaning="Updates of the step that were skipped because the loss or a gradient was not finite. The replies are in the "
        "run folder, under nonfinite.",
        healthy="0. Any other number: read those replies, and lower the learning rate. After `batch.max_skipped_in_a_row` "
        "on end the run stops.",
        unit="updates",
    ),
    Metric(
        name="optim/updates",
        meaning="Optimizer updates since the run began. Cumulative.",
        healthy="Grows by the updates of a step. One a step is on-policy; more reuse what was generated and need "
        "the clip.",
        unit="updates",
    ),
    # time
    Metric(
        name="time/step",
        meaning="Wall-clock time of the whole step. Evaluations are not in it: see `seconds` in `eval.jsonl`.",
        healthy="Steady or following `sampling/tokens_generated`.",
        unit="s",
    ),
    Metric(
        name="time/generate",
        meaning="Drawing replies, until the last group of the step was graded, without `time/grade`. With `batch.overlap`, "
        "only what training waited for.",
        healthy="Most of a step. Long with few tokens: too few replies in flight, or one very long reply.",
        unit="s",
    ),
    Metric(
        name="time/grade",
        meaning="What grading added to a step: seconds in which replies were graded while none was generated.",
        healthy="Small against `time/generate`. A jump is a scorer that met an answer it cannot finish.",
        unit="s",
    ),
    Metric(
        name="time/grade_all",
        meaning="Grading groups, summed over groups: they are graded beside each other and beside generation.",
        healthy="Small against `time/generate` times the number of groups. Growing: the scorer gets slower.",
        unit="s",
    ),
    Metric(
        name="time/train",
        meaning="Old log-probs, forward and backward passes, and optimizer updates.",
        healthy="Follows `tokens/trained`.",
        unit="s",
    ),
    Metric(
        name="time/sync",
        meaning="Handing the new weights to the engine.",
        healthy="Small and steady.",
        unit="s",
    ),
    Metric(
        name="time/save",
        meaning="How long training stood still for the disk: writing the step's groups, copying the state for a checkpoint, "
        "and waiting for the checkpoint before, should it still be written.",
        healthy="Milliseconds in steps without a checkpoint. Seconds beside many updates: raise `checkpoint.every`.",
        unit="s",
    ),
    Metric(
        name="time/save_share",
        meaning="`time/save` as a share of `time/step`.",
        healthy="A few hundredths at most, also in steps with a checkpoint.",
        unit="share",
    ),
    Metric(
        name="time/save_background",
        meaning="Writing, checking and renaming checkpoints beside training, of those that were completed in this step.",
        healthy="Less than the time between two checkpoints; otherwise training waits for the disk.",
        unit="s",
    ),
    Metric(
        name="memory/peak_gb",
        meaning="Largest memory in use during the step: of the accelerator, or of the process on a CPU.",
        healthy="Level after the first steps. Creeping up is a leak; near the limit, make micro-batches smaller.",
        unit="GB",
    ),
    # mismatch
    Metric(
        name="mismatch/kl",
        meaning="Estimated divergence between the engine's and the trainer's distribution, per sampled token.",
        healthy="Below 0.001 with equal precision; up to about 0.01 between a bfloat16 engine and a trainer. Growing, "
        "or above 0.05: weights are stale or numerics differ; take the trainer's own old log-probs and check that "
        "both sides use the same temperature.",
        unit="nats",
    ),
    Metric(
        name="mismatch/max_ratio",
        meaning="Largest ratio of the trainer's to the engine's probability of one sampled token.",
        healthy="Below about 2 is usual; single tokens of 10 and more happen in long replies at low precision. Steady "
        "growth is a fault.",
        unit="ratio",
    ),
    # value
    Metric(
        name="value/loss",
        meaning="Loss of the critic.",
        healthy="Falls in the first steps, then follows the variance of the returns.",
        unit="loss",
    ),
    Metric(
        name="value/clip",
        meaning="Share of tokens whose value is held back near the one it had before the step's updates.",
        healthy="0 in the first update of a step, small after it. Above 0.2 the critic is slowed down: raise its clip or "
        "make fewer updates a step.",
        unit="share",
    ),
    Metric(
        name="value/explained_variance",
        meaning="1 - variance of (return - value) / variance of return: how much the critic knows.",
        healthy="Rises from about 0 towards 1. At or below 0 the critic is no better than a constant: warm it up, or "
        "raise its learning rate.",
        unit="share",
    ),
    Metric(
        name="value/grad_norm",
        meaning="Norm of the critic's gradient before it is scaled down; with a shared backbone, of its head's alone.",
        healthy="Falls as the critic learns. Always far above the critic's max_grad_norm: its returns are large; lower its "
        "learning rate or scale the reward.",
        unit="norm",
    ),
)

METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _ALL})
"""Every metric by its name, in the order of the documentation."""

EVALUATION_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "step": "Rollout steps that the policy had been trained for; 0 is before training.",
        "data": "Name of the held-out problems.",
        "problems": "Number of problems.",
        "samples": "Replies drawn for each problem.",
        "avg": "Accuracy, 0 to 1: mean over problems of the share of right replies (avg@samples).",
        "ci_low": "Lower end of the 95% interval of `avg`: bootstrap over problems, whose replies stay together.",
        "ci_high": "Upper end of that interval. With 30 problems it is several points wide, whatever `samples` is.",
        "samples_low": "Lower end of the 95% interval of `avg` over samples alone: the same problems, asked again.",
        "samples_high": "Upper end of that interval. It shrinks as `samples` grows and says nothing about other problems.",
        "pass_at": "By k: the chance that at least one of k replies is right, without bias.",
        "maj": "Share of problems whose most frequent answer is right (majority vote over the samples).",
        "truncated": "Share of replies that the limit on new tokens ended. Above 0.1, `avg` understates the policy.",
        "length_mean": "Mean tokens of a reply.",
        "errors": "Replies that count as wrong because the engine or their scorer failed or gave nothing back in time.",
        "temperature": "Temperature of sampling. Compare evaluations of the same temperature, `top_p` and limit alone.",
        "top_p": "Share of probability that sampling drew from; 1 is all of it.",
        "seconds": "Wall-clock time of the evaluation.",
    }
)
"""The fields of a line of `eval.jsonl`."""


def markdown() -> str:
    """Return the catalogue as the Markdown of `docs/metrics.md`, one table a prefix."""
    parts = [_INTRODUCTION]
    for prefix, explanation in PREFIXES.items():
        rows = [metric for metric in METRICS.values() if metric.prefix == prefix]
        parts.append(f"\n## `{prefix}/`\n\n{explanation}\n\n")
        parts.append("| name | unit | meaning | healthy |\n|---|---|---|---|\n")
        parts.extend(f"| `{row.name}` | {row.unit} | {row.meaning} | {row.healthy} |\n" for row in rows)
    parts.append("\n## Evaluations: `eval.jsonl`\n\nOne JSON object a line, one line an evaluation.\n\n")
    parts.append("| field | meaning |\n|---|---|\n")
    parts.extend(f"| `{name}` | {meaning} |\n" for name, meaning in EVALUATION_FIELDS.items())
    return "".join(parts)


_INTRODUCTION = """# Metrics

<!-- Made by `python -m dapo.metrics > docs/metrics.md`; a test compares the two. -->

A run writes one JSON object a step to `metrics.jsonl`: `{"step": 12, "reward/mean": -0.52, ...}`. A number that is not
finite is written as `null`. A name begins with what it measures. "Healthy" is what to expect in a run that learns, and
what to do where the curve looks different; the numbers are rules of thumb, not limits.

Three curves to look at first: held-out accuracy in `eval.jsonl`, `policy/entropy`, and `length/truncated`.
"""


if __name__ == "__main__":
    sys.stdout.write(markdown())
