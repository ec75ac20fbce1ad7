"""Messages to token ids and back. The one place that knows chat templates; it applies one exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dapo.errors import ModelError
from dapo.types import Message, Problem, Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Renderer:
    """Turns problems into prompts and reply tokens into text.

    The rendered text is tokenized without special tokens of the tokenizer's own: whatever the template wrote (a begin
    token among it) is all there is, so a begin token never stands twice.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, end_tokens: frozenset[int], *, plain: bool = False) -> None:
        self._tokenizer = tokenizer
        self._end_tokens = end_tokens
        self._plain = plain

    @property
    def end_tokens(self) -> frozenset[int]:
        """The tokens that end a reply."""
        return self._end_tokens

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer itself, e.g. to be saved beside a policy."""
        return self._tokenizer

    def prompt(self, problem: Problem) -> Prompt:
        """Render a problem. Raises ModelError where the template refuses its messages."""
        text = self._text(problem.messages)
        if self._plain:
            token_ids = self._tokenizer(text).input_ids  # a base model's own begin token is wanted here
        else:
            token_ids = self._tokenizer(text, add_special_tokens=False).input_ids
        return Prompt(problem=problem, text=text, token_ids=tuple(token_ids))

    def reply_text(self, token_ids: Sequence[int]) -> str:
        """Text of a reply for the grader: the end token that closes it is cut, every other token stays (think tags too)."""
        kept = list(token_ids)
        if kept and kept[-1] in self._end_tokens:
            kept.pop()
        return str(self._tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _text(self, messages: Sequence[Message]) -> str:
        if self._plain:
            return "\n\n".join(message.content for message in messages)
        from jinja2 import TemplateError

        plain = [{"role": message.role, "content": message.content} for message in messages]
        try:
            return str(self._tokenizer.apply_chat_template(plain, add_generation_prompt=True, tokenize=False))
        except (TemplateError, ValueError) as error:
            roles = [message.role for message in messages]
            raise ModelError(
                f"The model's chat template refuses messages of the roles {roles}: {error}. Change the roles in the "
                "data (many templates know no system message, or want user and assistant in turn)."
            ) from error
