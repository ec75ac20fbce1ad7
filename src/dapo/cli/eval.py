"""`dapo eval`: measure a model on held-out problems, grade saved replies again, compare two evaluations."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dapo.cli.options import AsJson, Overrides, describe_accuracy, print_json
from dapo.config import load_config
from dapo.errors import RequestError
from dapo.verifiers import VerifierName

if TYPE_CHECKING:
    from dapo.evaluation import Comparison
    from dapo.inference import EvaluationPlan, Measured

_SHOWN_CHANGES = 10
_ANSWER_WIDTH = 24


def evaluate(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A run folder, a model folder, a Hub id, or package:NAME. Default: the recipe's model.",
            metavar="[MODEL_OR_RUN]",
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="Measure on this file of problems, or data set on the Hub.")
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(min=1, help="Replies to each problem, k of avg@k. Default: its copies in the file, mostly 1."),
    ] = None,
    temperature: Annotated[float | None, typer.Option(min=0, help="0 is greedy. Default: 1.")] = None,
    top_p: Annotated[float | None, typer.Option(min=0.01, max=1, help="Nucleus sampling. Default: 0.7.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Limit on new tokens. Default: 2048.")] = None,
    verifier: Annotated[VerifierName | None, typer.Option(help="What grades. Default: math.")] = None,
    problems: Annotated[int | None, typer.Option(min=1, help="Only the first so many problems.")] = None,
    template: Annotated[
        str | None, typer.Option(help="Words around a problem: keep, bare, dapo, boxed, or with {problem}.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The replies follow from it. Default: 0.")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder to write. Default: one below evaluations/.")] = None,
    again: Annotated[
        Path | None,
        typer.Option("--regrade", help="Grade the replies in this folder again, by --verifier.", metavar="FOLDER"),
    ] = None,
    pair: Annotated[
        tuple[str, str] | None,
        typer.Option("--compare", help="Two evaluation folders or runs; with --data, two models.", metavar="A B"),
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option("--recipe", help="Take task and sampling from this recipe; default: the run's own.")
    ] = None,
    override: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Measure accuracy, with a 95% interval over problems and another over samples.

    Without --data, on the held-out problems of a recipe or of the run's own. With --data, into a folder that keeps the
    replies; the same command goes on where it was stopped. --regrade and --compare use such folders.
    """
    on_file = {
        "samples": samples,
        "temperature": temperature,
        "top-p": top_p,
        "max-tokens": max_tokens,
        "problems": problems,
        "template": template,
        "seed": seed,
        "out": out,
    }
    given = {name: value for name, value in on_file.items() if value is not None}
    by_recipe = {"recipe": recipe, "override": override or None}
    _refuse_mixtures(model, data, given | {name: v for name, v in by_recipe.items() if v is not None}, again, pair)
    if again is not None:
        from dapo.inference import regrade

        _print_measured(regrade(again, verifier or "math"), as_json)
    elif pair is not None:
        first, second = (_evaluated(name, data, verifier, given) for name in pair)
        from dapo.inference import compare_evaluations

        _print_comparison(compare_evaluations(first, second, verifier), pair, (first, second), as_json)
    elif data is not None:
        assert model is not None
        plan = _plan(model, data, verifier, given)
        _warn_of_keys(plan)
        _print_measured(_run(plan), as_json)
    else:
        _by_recipe(model, recipe, override or [], {**given, **({"verifier": verifier} if verifier else {})}, as_json)


def _refuse_mixtures(
    model: str | None, data: str | None, given: Mapping[str, Any], again: Path | None, pair: tuple[str, str] | None
) -> None:
    """Refuse options that would be passed over in silence. Raises RequestError."""
    mode = "--regrade" if again is not None else "--compare" if pair is not None else "--data" if data else None
    if mode is None:
        return
    unused = []
    if mode == "--regrade":
        unused = [f"--{name}" for name in given] + (["--compare"] if pair else []) + (["--data"] if data else [])
    elif mode == "--compare":
        wanted = set() if data is None else {"recipe", "override", "out"}
        unused = [f"--{name}" for name in given if data is None or name in wanted]
    else:
        unused = [f"--{name}" for name in given if name in ("recipe", "override")]
    if mode != "--data" and model is not None:
        unused.insert(0, f"the model {model}")
    if unused:
        raise RequestError(f"{', '.join(unused)} cannot be used with {mode}. Leave it away.")
    if mode == "--data" and model is None:
        raise RequestError(f"What should be measured on {data}? Name a model or a run: dapo eval MODEL_OR_RUN --data …")


def _by_recipe(
    model: str | None, recipe: Path | None, overrides: list[str], given: Mapping[str, Any], as_json: bool
) -> None:
    if given:
        names = ", ".join(f"--{name}" for name in given)
        raise RequestError(
            f"{names} cannot be used without --data: a recipe's own [evaluation] settings hold. Name a file with --data, "
            "or change the settings with e.g. -o evaluation.samples=4."
        )
    from dapo.inference import config_for_evaluation, evaluate_policy

    line = evaluate_policy(config_for_evaluation(model, recipe, overrides, load_config))
    if as_json:
        print_json(line)
    else:
        _print_line(line)


def _plan(model: str, data: str, verifier: VerifierName | None, given: Mapping[str, Any]) -> EvaluationPlan:
    from pydantic import ValidationError

    from dapo.data.config import SourceConfig
    from dapo.inference import EvaluationRequest, plan_evaluation
    from dapo.types import Sampling
    from dapo.verifiers import VerifierConfig

    try:
        source = SourceConfig(path=data, template=given.get("template", "keep"))
    except ValidationError as error:
        raise RequestError(f"--data or --template cannot be used: {error.errors()[0]['msg']}.") from error
    request = EvaluationRequest(
        model=model,
        data=source,
        sampling=Sampling(
            temperature=given.get("temperature", 1.0),
            top_p=given.get("top-p", 0.7),
            max_tokens=given.get("max-tokens", 2048),
        ),
        samples=given.get("samples"),
        problems=given.get("problems"),
        seed=given.get("seed", 0),
        verifier=VerifierConfig(name=verifier or "math"),
    )
    return plan_evaluation(request, given.get("out"))


def _run(plan: EvaluationPlan) -> Measured:
    from dapo.inference import run_evaluation

    def show(done: int, of: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{done} of {of} problems", end="\n" if done == of else "", file=sys.stderr, flush=True)

    try:
        return run_evaluation(plan, show)
    except KeyboardInterrupt:
        print(
            f"\ndapo: stopped; {len(plan.folder.lines())} of {len(plan.problems)} problems are kept in "
            f"{plan.folder.path}. The same command goes on from there.",
            file=sys.stderr,
        )
        raise typer.Exit(130) from None


def _evaluated(name: str, data: str | None, verifier: VerifierName | None, given: Mapping[str, Any]) -> Path:
    """The evaluation folder that one side of a comparison means; a model is measured first."""
    from dapo.inference import newest_evaluation

    if data is not None:
        plan = _plan(name, data, verifier, given)
        _warn_of_keys(plan)
        return _run(plan).folder
    found = newest_evaluation(Path(name))
    if found is None:
        raise RequestError(
            f"{name} is no evaluation folder and no run with one. To compare models, say on what: --compare A B --data FILE."
        )
    return found


def _warn_of_keys(plan: EvaluationPlan) -> None:
    for found in plan.key_differences:
        sure = "" if found.certain else " (by its like wording)"
        print(
            f"dapo: {plan.request.data.path} row {found.row} ({found.id}): answer {found.answer}, and the known key of "
            f"{found.problem}{sure} is {' or '.join(found.keys)}",
            file=sys.stderr,
        )


def _print_measured(found: Measured, as_json: bool) -> None:
    if as_json:
        keys = [asdict(difference) for difference in found.key_differences]
        print_json({"folder": str(found.folder), **found.summary, "table": list(found.table), "key_differences": keys})
        return
    _print_line(found.summary)
    if found.summary["copies"] > 1:
        print(f"copies     the file holds each problem {found.summary['copies']} times; each counts once")
    if found.summary["errors"]:
        print(f"errors     {found.summary['errors']} replies could not be graded and count as wrong")
    print()
    width = max(len("problem"), *(len(str(row["id"])) for row in found.table))
    print(f"{'problem':<{width}}  {'right':>9}  {'majority answer':<{_ANSWER_WIDTH}}  gold")
    for row in found.table:
        right = f"{row['right']} of {row['of']}"
        print(f"{row['id']:<{width}}  {right:>9}  {_majority(row['majority']):<{_ANSWER_WIDTH}}  {_short(row['gold'])}")
    print(f"\nreplies and numbers: {found.folder}")


def _print_line(line: Mapping[str, Any]) -> None:
    k = line["samples"]
    print(f"accuracy   {describe_accuracy(line)}, avg@{k}")
    print("           that interval is over problems: what other problems like these would give")
    if "samples_low" in line:
        print(
            f"           {line['samples_low']:.1%} to {line['samples_high']:.1%} over samples: these problems, asked again"
        )
    print(f"majority   {line['maj']:.1%}")
    print("pass@k     " + "  ".join(f"{k}: {value:.1%}" for k, value in line["pass_at"].items()))
    print(f"truncated  {line['truncated']:.1%}, mean length {line['length_mean']:.1f} tokens")


def _print_comparison(found: Comparison, names: tuple[str, str], folders: tuple[Path, Path], as_json: bool) -> None:
    first, second = names
    if as_json:
        content = asdict(found)
        content["difference"] = found.difference._asdict()
        more = {"more_than_noise": found.is_more_than_noise, "sentence": found.sentence(first, second)}
        print_json({"a": str(folders[0]), "b": str(folders[1]), **content, **more})
        return
    better = sum(change.after > change.before for change in found.changed)
    worse = len(found.changed) - better
    print(f"A {first}: {found.before:.1%}")
    print(f"B {second}: {found.after:.1%}")
    print(f"B is better on {better} of {found.problems} problems, worse on {worse}, as good on the rest")
    for change in found.changed[:_SHOWN_CHANGES]:
        print(f"  {change.id}: {change.before:.1%} -> {change.after:.1%}")
    if len(found.changed) > _SHOWN_CHANGES:
        print(f"  and {len(found.changed) - _SHOWN_CHANGES} more with smaller changes; --json has all")
    print(found.sentence("A", "B"))


def _majority(leaders: list[str]) -> str:
    return _short(" | ".join(leaders)) if leaders else "-"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _ANSWER_WIDTH else line[: _ANSWER_WIDTH - 1] + "…"
