"""Chats: rendered by a tokenizer's chat template, with a mask of the tokens that the assistant wrote."""

from __future__ import annotations

import logging
import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from sweeps_train.compat.transformers import render_marked_chat
from sweeps_train.data.documents import half_pair

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_log = logging.getLogger(__name__)

Message = dict[str, Any]
Rendered = TypeVar("Rendered")

ANSWERING = ("assistant", "gpt", "chatgpt", "model", "bot")
"""Names of the role ``assistant`` in other forms of chats."""
_MARKS = re.compile(r"\{%-?\s*generation\s*-?%\}")


@dataclass(frozen=True)
class _Turn:
    """An assistant's turn in a rendered chat, as positions of characters."""

    start: int
    content_end: int
    end: int | None
    """End of the turn; None if the template renders the turn differently in the whole chat, so that only a special
    token marks the end."""


class ChatEncoder:
    """Tokenizes chats, and finds the assistant's turns, over which the loss is computed.

    Templates may mark the assistant's turns (``{% generation %}``); few do. Otherwise a turn begins where the template
    ends when it is asked to begin one (``add_generation_prompt``). It ends with the first special token after its text,
    or where the template ends without the messages that follow.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        """Raise ``ValueError`` if the tokenizer has no chat template, or cannot tell where a token is in the text."""
        if tokenizer.chat_template is None:
            raise ValueError(
                "data.messages_field needs a chat template, and the tokenizer has none; "
                "set model.tokenizer to one of a chat model"
            )
        if not tokenizer.is_fast:  # only tokenizers in Rust know which text a token came from
            raise ValueError(
                f"data.messages_field: {type(tokenizer).__name__} is written in Python and cannot tell which tokens "
                "are the assistant's; set model.tokenizer to a fast one, or use data.prompt_field and "
                "data.completion_field"
            )
        self._tokenizer = tokenizer
        self._is_marked = _MARKS.search(str(tokenizer.chat_template)) is not None
        self._special = set(tokenizer.all_special_ids)
        self._not_counted: set[str] = set()  # descriptions of messages, of which a warning was given

    def encode(self, messages: Sequence[Message]) -> tuple[list[int], list[bool]]:
        """Tokenize a chat of messages with ``role`` and ``content``; return the token ids, and for each whether the
        assistant wrote it.

        Raises:
            ValueError: The template does not fit the chat, or the assistant's turns cannot be found.
        """
        self._check_form(messages)
        if self._is_marked:
            text, turns = _fitting(lambda: render_marked_chat(self._tokenizer, messages))
            ids, starts, ends = self._tokenized(text)
            # Not by transformers' own mask: where a turn's last character is in no token, or in the very first one, it
            # counts everything that follows.
            spans = (range(bisect_right(ends, start), bisect_left(starts, end)) for start, end in turns if start < end)
            written = {token for span in spans for token in span}
            return ids, [token in written for token in range(len(ids))]
        self._warn_of_other_roles(messages)
        text = self._render(messages)
        ids, starts, _ = self._tokenized(text)
        mask = [False] * len(ids)
        earliest = 0
        for number, message in enumerate(messages):
            if message.get("role") == "assistant":
                turn = self._turn(text, messages, number, earliest)
                for token in self._tokens_of(turn, ids, starts, number):
                    mask[token] = True
                earliest = turn.content_end
        return ids, mask

    def _tokenized(self, text: str) -> tuple[list[int], list[int], list[int]]:
        """Return the token ids of a rendered chat, and the places in the text where each token begins and ends."""
        try:
            encoded: Any = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        except TypeError as error:
            raise ValueError(half_pair(text) or str(error)) from error
        places = encoded["offset_mapping"]
        return list(encoded["input_ids"]), [start for start, _ in places], [end for _, end in places]

    def _turn(self, text: str, messages: Sequence[Message], number: int, earliest: int) -> _Turn:
        content = messages[number].get("content")
        if not isinstance(content, str) or not content.strip():
            raise ValueError(
                f"message {number + 1}, of the assistant, has no text: its content is {content!r:.60}; give one text"
            )
        begun = self._begun(text, messages, number)
        if begun is None or len(begun) < earliest:
            raise ValueError(
                f"the tokenizer's chat template changes the text before message {number + 1} when the assistant's "
                "answer is added, so the answer's tokens cannot be told from the user's; set model.tokenizer to one "
                "whose template marks them ({% generation %}), or use data.prompt_field and data.completion_field"
            )
        # Some templates remove what a model thought before it answered, and white space around the answer.
        answer = content.rpartition("</think>")[2].strip() or content.strip()
        found = text.find(answer, len(begun))
        if found < 0:
            raise ValueError(f"the tokenizer's chat template leaves out the text of message {number + 1}")
        ended = self._render(messages[: number + 1])
        return _Turn(len(begun), found + len(answer), len(ended) if text.startswith(ended) else None)

    def _begun(self, text: str, messages: Sequence[Message], number: int) -> str | None:
        """Return the rendered chat up to a turn of the assistant; None if the template does not show where it
        begins."""
        if number > 0:
            begun = self._render(messages[:number], add_generation_prompt=True)
            return begun if text.startswith(begun) else None
        # transformers does not render a chat without messages, so here the turn begins after the first prompt for one.
        plain, asked = self._render(messages[:1]), self._render(messages[:1], add_generation_prompt=True)
        same = len(os.path.commonprefix([plain, asked]))  # noqa: RUF071 - by characters
        prompt = asked[same:]  # a template may end a chat with a token of its own
        return text[: text.index(prompt) + len(prompt)] if prompt and prompt in text else None

    def _tokens_of(self, turn: _Turn, ids: list[int], starts: list[int], number: int) -> Iterator[int]:
        """Yield the positions of the tokens that the assistant writes, including the special token that ends its
        turn."""
        for token in range(bisect_left(starts, turn.start), len(ids)):
            start = starts[token]
            is_end = start >= turn.content_end and ids[token] in self._special
            if turn.end is not None and start >= turn.end and not is_end:
                return
            yield token
            if is_end:
                return
        if turn.end is None:
            raise ValueError(
                f"the end of message {number + 1} cannot be found in the rendered chat; set model.tokenizer to one "
                "whose chat template marks the assistant's turns ({% generation %})"
            )

    @staticmethod
    def _check_form(messages: Any) -> None:
        """Raise ``ValueError`` unless it is a list of messages."""
        is_list = isinstance(messages, Iterable) and all(isinstance(each, Mapping) for each in messages)
        if not is_list or isinstance(messages, Mapping):
            wrong = "a text" if isinstance(messages, str) else f"{messages!r:.60}"
            raise ValueError(
                f"its messages are {wrong}; give a list of messages with role and content, as json.loads makes it of "
                "JSON"
            )
        if len(messages) == 0:
            raise ValueError("it has no messages; remove empty chats")

    def _warn_of_other_roles(self, messages: Sequence[Message]) -> None:
        """Warn once of each form of answers that the loss does not count."""
        for message in messages:
            role = message.get("role")
            if role is not None and (role == "assistant" or str(role).lower() not in ANSWERING):
                continue
            found = f"no role but {', '.join(message)}" if role is None else f"the role {role!r}"
            if found not in self._not_counted:
                self._not_counted.add(found)
                _log.warning(
                    "data.messages_field: there are messages with %s, which the loss does not count; the role of "
                    "answers must be 'assistant', and their text be in content", found,
                )  # fmt: skip

    def _render(self, messages: Sequence[Message], **options: Any) -> Any:
        return _fitting(lambda: self._tokenizer.apply_chat_template(list(messages), tokenize=False, **options))


def _fitting(render: Callable[[], Rendered]) -> Rendered:
    try:
        return render()
    except Exception as error:  # a template may raise any error
        raise ValueError(f"it does not fit the chat template: {error}") from error
