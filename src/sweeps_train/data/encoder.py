"""Tokenizing: documents as token ids, with a mask of the tokens that the loss counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from sweeps_train.config import TextData
from sweeps_train.data.chat import ChatEncoder
from sweeps_train.data.data_files import Document
from sweeps_train.data.documents import column, half_pair

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_DOCUMENTS_AT_ONCE = 1000
"""Documents per call of the tokenizer: enough for its threads, and few enough for the memory of Python lists."""

Tokens = tuple[list[int], list[bool]]
"""A document's token ids, and for each token whether it is to be predicted."""


class Encoder:
    """Tokenizes the columns of documents that the config names."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, config: TextData):
        """Raise ``ValueError`` if the tokenizer has no end-of-text token, or returns no tokens for a letter."""
        if not isinstance(tokenizer.eos_token_id, int):
            raise ValueError(  # noqa: TRY004 - a mistake in the config
                "the tokenizer has no end-of-text token; set model.tokenizer to one that has it"
            )
        self._tokenizer = tokenizer
        self._config = config
        self._chat_encoder = ChatEncoder(tokenizer) if config.messages_field is not None else None
        self.end = tokenizer.eos_token_id
        self.vocabulary = len(tokenizer)
        # Some tokenizers add tokens at the beginning or end of every text. These are added here instead, since they do
        # not belong between prompt and completion.
        ids = tokenizer("a").input_ids
        if not ids:
            raise ValueError(
                "the tokenizer returns no tokens for a letter: its files may belong to another kind of model than "
                "model.path; set model.tokenizer to one that reads text"
            )
        letter = tokenizer("a", add_special_tokens=False).input_ids
        before = (start for start in range(len(ids)) if ids[start : start + len(letter)] == letter)
        # A tokenizer without any token for the letter leaves only what it adds.
        self._begin = ids[: next(before, 0)] if letter else ids[: int(ids[0] == tokenizer.bos_token_id)]

    def encode(self, documents: Iterable[Document]) -> Iterator[Tokens]:
        """Tokenize documents: truncated to ``sequence_length`` tokens, or in full if documents are packed.

        Raises:
            ValueError: A document lacks a configured column, or its text cannot be tokenized.
        """
        config = self._config
        length = None if config.packing else config.sequence_length
        remaining, first = iter(documents), 1
        while some := list(islice(remaining, _DOCUMENTS_AT_ONCE)):
            if config.messages_field is not None and self._chat_encoder is not None:
                chats = column(some, "data.messages_field", config.messages_field, first)
                tokens = self._chats(self._chat_encoder, chats, first)
            elif config.prompt_field is not None and config.completion_field is not None:
                prompts = self._encode(some, "data.prompt_field", config.prompt_field, first)
                completions = self._encode(some, "data.completion_field", config.completion_field, first)
                tokens = self._completions(prompts, completions)
            else:
                assert config.text_field is not None
                tokens = self._plain(self._encode(some, "data.text_field", config.text_field, first))
            for ids, counted in tokens:
                yield ids[:length], counted[:length]
            first += len(some)

    def _plain(self, texts: Iterable[list[int]]) -> Iterator[Tokens]:
        for ids in texts:
            tokens = self._with_end(self._with_begin(ids))
            yield tokens, [True] * len(tokens)

    def _completions(self, prompts: Iterable[list[int]], completions: Iterable[list[int]]) -> Iterator[Tokens]:
        # Tokenized separately, so that the prompt has the tokens that it will have at inference.
        for prompt, completion in zip(prompts, completions, strict=True):
            before, after = self._with_begin(prompt), self._with_end(completion)
            yield before + after, [False] * len(before) + [True] * len(after)

    def _with_begin(self, ids: list[int]) -> list[int]:
        """Prepend the tokenizer's first tokens, unless the text has them already, as a rendered chat may."""
        return ids if ids[: len(self._begin)] == self._begin else [*self._begin, *ids]

    def _with_end(self, ids: list[int]) -> list[int]:
        return ids if ids[-1:] == [self.end] else [*ids, self.end]

    def _chats(self, encoder: ChatEncoder, chats: Iterable[Any], first: int) -> Iterator[Tokens]:
        for number, messages in enumerate(chats, first):
            try:
                yield encoder.encode(messages)
            except ValueError as error:
                raise ValueError(f"data.messages_field: document {number}: {error}") from error

    def _encode(self, documents: list[Document], key: str, name: str, first: int) -> list[list[int]]:
        texts = list(column(documents, key, name, first))
        for number, text in enumerate(texts, first):
            if not isinstance(text, str):
                raise ValueError(  # noqa: TRY004 - a mistake in the data
                    f"{key}: document {number} holds a {type(text).__name__} there; it must be text"
                )
        try:
            # verbose=False: documents longer than the model's positions are truncated later.
            encoded: list[list[int]] = self._tokenizer(texts, add_special_tokens=False, verbose=False).input_ids
        except (TypeError, UnicodeError) as error:
            for number, text in enumerate(texts, first):
                if (fault := half_pair(text)) is not None:
                    raise ValueError(f"{key}: document {number}: {fault}") from error
            raise
        return encoded
