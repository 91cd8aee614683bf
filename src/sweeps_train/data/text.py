"""Text as sequences of tokens: packed, or one a document, with a mark on the tokens that the loss counts."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from sweeps_train.config import TextData
from sweeps_train.data.documents import Document, column, read_documents
from sweeps_train.data.samples import Batch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_log = logging.getLogger(__name__)

IGNORED = -100
"""Target of a position that adds nothing to the loss (torch's cross-entropy skips it)."""

Tokens = tuple[list[int], list[bool]]
"""A document: its tokens, and which of them are to be predicted."""


class TextSamples:
    """Sequences of tokens, kept one after another in memory."""

    def __init__(self, sequences: Iterable[Tokens], pad_token: int):
        """Sequences without a token to predict (the first one never is) teach nothing, and are left out."""
        tokens: list[npt.NDArray[np.int64]] = []
        counted: list[npt.NDArray[np.bool_]] = []
        self.num_left_out = 0
        for ids, is_counted in sequences:
            if any(is_counted[1:]):
                tokens.append(np.asarray(ids, dtype=np.int64))
                counted.append(np.asarray(is_counted, dtype=np.bool_))
                counted[-1][0] = False
            else:
                self.num_left_out += 1
        self._tokens, self._counted, self._pad_token = tokens, counted, pad_token
        self._units = np.array([row.sum() for row in counted], dtype=np.int64)
        self._sizes = np.array([len(row) for row in tokens], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._tokens)

    def units(self, indices: Sequence[int]) -> int:
        return int(self._units[indices].sum())

    def size(self, indices: Sequence[int]) -> int:
        return int(self._sizes[indices].sum())

    def batch(self, indices: Sequence[int]) -> Batch:
        """``input_ids`` and ``targets`` (the next token, or ``IGNORED``), both (batch, length of the longest);
        ``attention_mask`` of the same shape if anything is padded."""
        length = int(self._sizes[indices].max())
        input_ids = np.full((len(indices), length), self._pad_token)
        targets = np.full((len(indices), length), IGNORED)
        mask = np.zeros((len(indices), length), dtype=np.int64)
        for row, index in enumerate(indices):
            tokens, counted = self._tokens[index], self._counted[index]
            input_ids[row, : len(tokens)] = tokens
            targets[row, : len(tokens) - 1] = np.where(counted[1:], tokens[1:], IGNORED)
            mask[row, : len(tokens)] = 1
        batch = {"input_ids": torch.from_numpy(input_ids), "targets": torch.from_numpy(targets)}
        # Attention is faster without a mask.
        return batch if mask.all() else {**batch, "attention_mask": torch.from_numpy(mask)}


def build_text_samples(
    config: TextData, tokenizer: PreTrainedTokenizerBase, max_positions: int | None
) -> tuple[TextSamples, TextSamples]:
    """Training and held-out sequences.

    Args:
        config: What to read and how to cut it.
        tokenizer: The model's.
        max_positions: Tokens that the model can take in one sequence; None for no limit.

    Raises:
        ValueError: The data, or the sequence length, cannot be used.
    """
    if max_positions is not None and config.sequence_length > max_positions:
        raise ValueError(
            f"data.sequence_length={config.sequence_length} is longer than the {max_positions} positions of the model; "
            f"use at most {max_positions}"
        )
    encoder = _Encoder(tokenizer, config)
    pad_token = tokenizer.pad_token_id if isinstance(tokenizer.pad_token_id, int) else encoder.end
    splits = []
    for documents in read_documents(config):
        samples = TextSamples(encoder.sequences(documents), pad_token)
        if samples.num_left_out:
            _log.warning(
                "%d of %d sequences have no token that the loss counts within data.sequence_length=%d, "
                "and are left out",
                samples.num_left_out, samples.num_left_out + len(samples), config.sequence_length,
            )  # fmt: skip
        if len(samples) == 0:
            raise ValueError(
                f"data.path={config.path}: nothing to learn from within data.sequence_length={config.sequence_length}; "
                "raise it, or look whether the text is empty"
            )
        splits.append(samples)
    return splits[0], splits[1]


class _Encoder:
    """Turns documents into tokens, as the config says which columns are what."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, config: TextData):
        if not isinstance(tokenizer.eos_token_id, int):
            raise ValueError(  # noqa: TRY004 - a mistake in the config
                "the tokenizer has no end-of-text token; give model.tokenizer one that has"
            )
        self._tokenizer = tokenizer
        self._config = config
        self.end = tokenizer.eos_token_id
        # Some tokenizers begin every text with a token and some end it with one: asked for plain tokens, both can be
        # put where they belong, which is not between prompt and completion.
        ids = tokenizer("a").input_ids
        self._begin = [ids[0]] if ids[0] == tokenizer.bos_token_id else []

    def sequences(self, documents: Sequence[Document]) -> Iterator[Tokens]:
        """At most ``sequence_length`` tokens each."""
        config = self._config
        if config.messages_field is not None:
            tokens = self._chats(column(documents, "data.messages_field", config.messages_field))
        elif config.prompt_field is not None and config.completion_field is not None:
            tokens = self._completions(
                column(documents, "data.prompt_field", config.prompt_field),
                column(documents, "data.completion_field", config.completion_field),
            )
        else:
            assert config.text_field is not None
            tokens = self._plain(column(documents, "data.text_field", config.text_field))
            if config.packing:
                return _packed(tokens, config.sequence_length)
        return ((ids[: config.sequence_length], counted[: config.sequence_length]) for ids, counted in tokens)

    def _plain(self, texts: Iterable[Any]) -> Iterator[Tokens]:
        for ids in self._encode("data.text_field", texts):
            whole = [*self._begin, *ids, self.end]
            yield whole, [True] * len(whole)

    def _completions(self, prompts: Iterable[Any], completions: Iterable[Any]) -> Iterator[Tokens]:
        # Apart, so that the prompt's tokens are those that it will have when the model is used.
        encoded = zip(
            self._encode("data.prompt_field", prompts),
            self._encode("data.completion_field", completions),
            strict=True,
        )
        for prompt, completion in encoded:
            before, after = [*self._begin, *prompt], [*completion, self.end]
            yield before + after, [False] * len(before) + [True] * len(after)

    def _chats(self, chats: Iterable[Any]) -> Iterator[Tokens]:
        template = self._tokenizer.chat_template
        if template is None:
            raise ValueError(
                "data.messages_field needs a chat template, and the tokenizer has none; "
                "give model.tokenizer one of a chat model"
            )
        # Where text became tokens is known to the tokenizers in Rust alone.
        marks = re.search(r"\{%-?\s*generation\s*-?%\}", str(template)) is not None and self._tokenizer.is_fast
        if not marks:
            _log.warning(
                "the tokenizer's chat template does not mark the assistant's turns ({% generation %}), or the "
                "tokenizer is written in Python and cannot follow them: the loss counts all tokens, the user's too"
            )
        for index, messages in enumerate(chats):
            try:
                # Its type leaves out the dict.
                encoded: Any = self._tokenizer.apply_chat_template(
                    messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=marks
                )
            except Exception as error:  # a template may raise whatever its author thought of
                raise ValueError(
                    f"data.messages_field: document {index + 1} does not fit the chat template: {error}"
                ) from error
            ids = list(encoded["input_ids"])
            yield ids, [bool(mark) for mark in encoded["assistant_masks"]] if marks else [True] * len(ids)

    def _encode(self, key: str, texts: Iterable[Any]) -> Iterator[list[int]]:
        listed = list(texts)
        for index, text in enumerate(listed):
            if not isinstance(text, str):
                raise ValueError(  # noqa: TRY004 - a mistake in the data
                    f"{key}: document {index + 1} holds a {type(text).__name__} there; it must be text"
                )
        # verbose=False: documents longer than the model's positions are cut later.
        encoded: list[list[int]] = self._tokenizer(listed, add_special_tokens=False, verbose=False).input_ids
        yield from encoded


def _packed(documents: Iterable[Tokens], length: int) -> Iterator[Tokens]:
    """All documents as one stream, cut into sequences; the last one may be shorter."""
    stream: list[int] = []
    for ids, _ in documents:
        stream += ids
        whole = len(stream) // length * length
        for start in range(0, whole, length):
            yield stream[start : start + length], [True] * length
        del stream[:whole]
    if len(stream) > 1:
        yield stream, [True] * len(stream)
