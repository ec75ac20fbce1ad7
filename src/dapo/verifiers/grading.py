"""Grades one reply in the calling process. `pool` does the same with limits on time and memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dapo.verifiers import dapo_rule
from dapo.verifiers.extract import Missing, find_answer
from dapo.verifiers.grades import Grade, Reply, VerifierName
from dapo.verifiers.nodes import Listing
from dapo.verifiers.quick import Value, decide, is_in_words, read_gold, read_value, why_not


@dataclass(frozen=True, slots=True)
class Question:
    """What is left to symbolic mathematics: is this answer equal to this gold?"""

    gold: str
    answer: str
    extracted: str


def grade(response: str, gold: str, *, verifier: VerifierName = "math", truncated: bool = False) -> Grade:
    """Grade a reply, however long it takes. The right call for one reply by hand; training uses `VerifierPool`.

    `truncated` says that a limit ended the response, so that it must have stated its answer by a marker.
    """
    outcome = grade_quickly(Reply(response=response, gold=gold, truncated=truncated), verifier)
    if isinstance(outcome, Grade):
        return outcome
    from dapo.verifiers import symbolic

    return answered(outcome, symbolic.is_equal(outcome.gold, outcome.answer))


def grade_quickly(reply: Reply, verifier: VerifierName) -> Grade | Question:
    """Grade a reply in bounded time, or return the question that this cannot settle."""
    if verifier == "dapo":
        return dapo_rule.grade(reply.response, reply.gold)
    gold = read_gold(reply.gold)
    if not gold.text.strip():
        return Grade(correct=False, extracted=None, why="the gold is empty, and nothing equals it")
    stated = find_answer(reply.response, truncated=reply.truncated, in_words=is_in_words(gold))
    if isinstance(stated, Missing):
        return Grade(correct=False, extracted=None, why=stated.why)
    return _judge(gold, read_value(stated.text, free=stated.kind == "free"), stated.boxes)


def _judge(gold: Value, answer: Value, boxes: tuple[str, ...]) -> Grade | Question:
    verdict = decide(gold, answer)
    if verdict is None:
        return Question(gold=gold.source, answer=answer.source, extracted=answer.shown)
    if verdict:
        return Grade(correct=True, extracted=answer.shown, why="equal to the gold")
    if isinstance(gold.node, Listing) and not gold.node.opening and 1 < len(gold.node.items) <= len(boxes):
        return _judge(gold, read_value(", ".join(boxes[-len(gold.node.items) :])), ())
    return Grade(correct=False, extracted=answer.shown, why=why_not(gold, answer))


def answered(question: Question, equal: bool, error: str | None = None) -> Grade:
    """The grade that an answer to a question makes."""
    why = error or ("equal to the gold by symbolic mathematics" if equal else "another value than the gold")
    return Grade(correct=equal, extracted=question.extracted, why=why, error=error)


def with_watcher(grade: Grade, watcher: Grade) -> Grade:
    """The grade, with what the watching verifier said."""
    return replace(grade, watched=watcher.correct)
