"""Text as sequences of tokens: packed, or one a document, with a mark on the tokens that the loss counts."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import re
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sweeps_train.config import TextData
from sweeps_train.data.array_cache import Arrays, cached_arrays
from sweeps_train.data.documents import Document, column, fingerprint, read_documents
from sweeps_train.data.samples import Batch, in_batches

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_log = logging.getLogger(__name__)

IGNORED = -100
"""Target of a position that adds nothing to the loss (torch's cross-entropy skips it)."""

_DOCUMENTS_AT_ONCE = 1000
"""That the tokenizer is given: enough for its threads, and few as Python's lists take much memory."""

Tokens = tuple[list[int], list[bool]]
"""A document: its tokens, and which of them are to be predicted."""


def to_arrays(sequences: Iterable[Tokens]) -> Arrays:
    """Sequences one after another; those without a token to predict (the first one never is) teach nothing, and are
    left out.

    Returns:
        ``tokens`` and ``counted`` of the length of all sequences together; ``ends`` and ``units``, where each sequence
        ends and how many tokens of it count; ``left_out``, of one number.
    """
    tokens, counted, ends, units = array("q"), bytearray(), array("q"), array("q")
    left_out = 0
    for ids, is_counted in sequences:
        if any(is_counted[1:]):
            tokens.extend(ids)
            counted += bytes([False, *is_counted[1:]])
            ends.append(len(tokens))
            units.append(sum(is_counted[1:]))
        else:
            left_out += 1
    whole = np.array(tokens, dtype=np.int64)
    return {
        # Most vocabularies fit into 16 bits.
        "tokens": whole.astype(np.min_scalar_type(int(whole.max(initial=0)))),
        "counted": np.frombuffer(bytes(counted), dtype=np.bool_),
        "ends": np.array(ends, dtype=np.int64),
        "units": np.array(units, dtype=np.int64),
        "left_out": np.array([left_out]),
    }


class TextSamples:
    """Sequences of tokens, one after another in arrays that processes may share."""

    def __init__(self, arrays: Arrays, pad_token: int):
        """
        Args:
            arrays: What ``to_arrays`` returns; only read.
            pad_token: Fills up the shorter sequences of a batch.
        """
        self._tokens, self._counted = arrays["tokens"], arrays["counted"]
        self._ends, self._units = arrays["ends"], arrays["units"]
        self._pad_token = pad_token
        self._sizes = np.diff(self._ends, prepend=0)
        self.num_left_out = int(arrays["left_out"][0])

    def __len__(self) -> int:
        return len(self._ends)

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
            place = slice(self._ends[index] - self._sizes[index], self._ends[index])
            tokens, counted = self._tokens[place].astype(np.int64), self._counted[place]
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

    def make() -> Arrays:
        splits = zip(("train", "eval"), read_documents(config), strict=True)
        arrays = ((split, to_arrays(encoder.sequences(documents))) for split, documents in splits)
        return {f"{split}.{name}": values for split, named in arrays for name, values in named.items()}

    arrays = cached_arrays("text", _dependencies(config, tokenizer), make)
    splits = []
    for split in ("train.", "eval."):
        samples = TextSamples(
            {name.removeprefix(split): values for name, values in arrays.items() if name.startswith(split)}, pad_token
        )
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


def _dependencies(config: TextData, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Everything from which the arrays follow, our own code included."""
    code = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        code.update(file.read_bytes())
    return {
        "data": dataclasses.asdict(config),
        "sources": fingerprint(config),
        "tokenizer": _tokenizer_fingerprint(tokenizer),
        "code": code.hexdigest(),
        "python": sys.version,
        "libraries": {name: version(name) for name in ("transformers", "tokenizers", "datasets")},
    }


def _tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """A hash of the files that make such a tokenizer, and of its class: some are written in Python."""
    content = hashlib.sha256(f"{type(tokenizer).__module__}.{type(tokenizer).__qualname__}".encode())
    with TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        for file in sorted(Path(folder).rglob("*")):
            if file.is_file():
                content.update(file.name.encode())
                content.update(file.read_bytes())
    return content.hexdigest()


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
        for some in in_batches(range(len(listed)), _DOCUMENTS_AT_ONCE):
            batch = [listed[index] for index in some]
            # verbose=False: documents longer than the model's positions are cut later.
            yield from self._tokenizer(batch, add_special_tokens=False, verbose=False).input_ids


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
