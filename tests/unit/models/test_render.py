from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dapo.errors import ModelError
from dapo.models.config import ModelConfig
from dapo.models.load import open_renderer
from dapo.models.render import Renderer
from dapo.types import Message, Problem
from tests.tiny import ASSISTANT, BEGIN, END, END_THINK, THINK, TURN, UNKNOWN, USER

Tiny = Callable[..., Path]


@pytest.fixture
def renderer(tiny: Tiny) -> Renderer:
    return open_renderer(ModelConfig(path=str(tiny())))


@pytest.fixture
def plain(tiny: Tiny) -> Renderer:
    return open_renderer(ModelConfig(path=str(tiny(template=None)), chat_template="none"))


def problem(*messages: tuple[str, str]) -> Problem:
    return Problem(id="one", messages=tuple(Message(role=role, content=text) for role, text in messages), answer="2")


def ids(renderer: Renderer, *tokens: str) -> list[int]:
    found = renderer.tokenizer.convert_tokens_to_ids(list(tokens))
    assert all(token is not None for token in found)
    return list(found)


def test_the_template_is_applied_once(renderer: Renderer) -> None:
    asked = problem(("user", "1+1"))

    prompt = renderer.prompt(asked)

    assert prompt.problem is asked
    assert prompt.text == "<|begin|><|user|>1+1<|assistant|>"
    assert list(prompt.token_ids) == ids(renderer, BEGIN, USER, "1", "+", "1", ASSISTANT)


def test_a_template_that_writes_the_begin_token_gives_one_and_no_more(renderer: Renderer) -> None:
    begin = renderer.tokenizer.bos_token_id
    assert renderer.tokenizer("1").input_ids == [begin, *ids(renderer, "1")]  # the tokenizer would add its own

    prompt = renderer.prompt(problem(("system", "Be brief."), ("user", "1"), ("assistant", "2"), ("user", "3")))

    assert prompt.token_ids.count(begin) == 1
    assert prompt.token_ids[0] == begin
    assert prompt.text == "<|begin|><|system|>Be brief.<|user|>1<|assistant|>2<|user|>3<|assistant|>"


def test_a_template_without_a_begin_token_gives_none(tiny: Tiny, tmp_path: Path) -> None:
    template = tmp_path / "bare.jinja"
    template.write_text("{% for m in messages %}{{ m['content'] }}{% endfor %}?", encoding="utf-8")
    renderer = open_renderer(ModelConfig(path=str(tiny()), chat_template=str(template)))

    prompt = renderer.prompt(problem(("user", "12")))

    assert prompt.text == "12?"
    assert list(prompt.token_ids) == ids(renderer, "1", "2", "?")


def test_a_template_file_takes_the_place_of_the_tokenizers_own(tiny: Tiny, tmp_path: Path) -> None:
    template = tmp_path / "own.jinja"
    template.write_text("{{ bos_token }}Q: {{ messages[-1]['content'] }}\nA:", encoding="utf-8")
    renderer = open_renderer(ModelConfig(path=str(tiny()), chat_template=str(template)))

    assert renderer.prompt(problem(("user", "12"))).text == "<|begin|>Q: 12\nA:"


def test_none_joins_contents_by_blank_lines_with_the_tokenizers_own_begin_token(plain: Renderer) -> None:
    prompt = plain.prompt(problem(("system", "Add."), ("user", "1+1=")))

    assert prompt.text == "Add.\n\n1+1="
    tokens = plain.tokenizer.convert_ids_to_tokens(list(prompt.token_ids))
    assert tokens == [BEGIN, "A", "d", "d", ".", "Ċ", "Ċ", "1", "+", "1", "="]


def test_none_is_heeded_where_the_tokenizer_has_a_template(tiny: Tiny) -> None:
    renderer = open_renderer(ModelConfig(path=str(tiny()), chat_template="none"))

    assert renderer.prompt(problem(("user", "1"))).text == "1"


def test_a_template_that_refuses_a_role_is_an_error_in_words(tiny: Tiny, tmp_path: Path) -> None:
    template = tmp_path / "strict.jinja"
    template.write_text(
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}",
        encoding="utf-8",
    )
    renderer = open_renderer(ModelConfig(path=str(tiny()), chat_template=str(template)))

    with pytest.raises(ModelError, match=r"roles \['system', 'user'\]: System role not supported"):
        renderer.prompt(problem(("system", "Be brief."), ("user", "1")))


def test_every_end_token_is_known_the_tokenizers_and_the_models(renderer: Renderer) -> None:
    assert renderer.end_tokens == set(ids(renderer, END, TURN))


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (["4", "2", END], "42"),
        (["4", "2", TURN], "42"),
        (["4", "2"], "42"),
        ([END], ""),
        ([], ""),
        ([THINK, "6", "*", "7", END_THINK, "4", "2", END], "<think>6*7</think>42"),
        (["Ġ", "4", "Ġ", "2", "Ċ", END], " 4 2\n"),
        (["4", BEGIN, USER, "2", END], "4<|begin|><|user|>2"),
        (["4", "Ġ", ".", "Ġ", ",", END], "4 . ,"),
        ([UNKNOWN, "1"], "<|unknown|>1"),
    ],
)
def test_reply_text_cuts_the_end_marker_and_keeps_every_other_token(
    renderer: Renderer, tokens: list[str], text: str
) -> None:
    assert renderer.reply_text(ids(renderer, *tokens)) == text


def test_only_the_end_token_that_closes_a_reply_is_cut(renderer: Renderer) -> None:
    assert renderer.reply_text(ids(renderer, "4", END, END)) == "4<|end|>"
