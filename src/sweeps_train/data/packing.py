"""Sequences of tokens, cut from arrays that are in memory or mapped from files."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sweeps_train.data.array_cache import Arrays
from sweeps_train.data.encoder import Tokens
from sweeps_train.data.sample_order import Batch

IGNORED = -100
"""Target of a position that adds nothing to the loss (torch's cross-entropy skips it)."""


def to_arrays(documents: Iterable[Tokens], vocabulary: int, *, packed: bool) -> Arrays:
    """Concatenate tokenized documents.

    Args:
        documents: Tokens of each document, and which of them are to be predicted.
        vocabulary: Number of different tokens.
        packed: Whether the documents become one stream, all of whose tokens count. Otherwise each is a sequence, and
            those without a token to predict (the first one is never predicted) are left out.

    Returns:
        ``tokens`` of all documents, shape (tokens,); ``ends``, the position where each document ends, shape
        (documents,); and ``largest``, the largest token, shape (1,). If not packed also ``counted``, shape (tokens,);
        ``units``, the number of counted tokens of each document; and ``left_out``, the number of documents that were
        left out, shape (1,).

    Example:
        >>> arrays = to_arrays([([5, 6, 7], [True] * 3), ([8, 9], [True] * 2)], vocabulary=10, packed=True)
        >>> arrays["tokens"].tolist(), arrays["ends"].tolist()
        ([5, 6, 7, 8, 9], [3, 5])
    """
    # Most vocabularies fit into 16 bits.
    tokens, counted = array("H" if vocabulary <= 2**16 else "I"), bytearray()
    ends, units = array("q"), array("q")
    left_out = 0
    for ids, is_counted in documents:
        if packed:
            tokens.extend(ids)
        elif any(is_counted[1:]):
            tokens.extend(ids)
            counted += bytes([False, *is_counted[1:]])
            units.append(sum(is_counted[1:]))
        else:
            left_out += 1
            continue
        ends.append(len(tokens))
    of_all: npt.NDArray[Any] = np.array(tokens)
    arrays: Arrays = {
        "tokens": of_all,
        "ends": np.array(ends, dtype=np.int64),
        "largest": np.array([of_all.max(initial=0)], dtype=np.int64),
    }
    if packed:
        return arrays
    return {
        **arrays,
        "counted": np.frombuffer(bytes(counted), dtype=np.bool_),
        "units": np.array(units, dtype=np.int64),
        "left_out": np.array([left_out]),
    }


class TextSamples:
    """Samples that are one document each."""

    def __init__(self, arrays: Arrays, pad_token: int, *, longest_first: bool = False):
        """Read the result of ``to_arrays``. With ``longest_first``, samples are ordered by length, so that neighbours
        need little padding."""
        self._tokens, self._counted = arrays["tokens"], arrays["counted"]
        self._ends, self._units = arrays["ends"], arrays["units"]
        self._order = np.argsort(-np.diff(self._ends, prepend=0), kind="stable") if longest_first else None
        self._pad_token = pad_token
        self.num_left_out = int(arrays["left_out"].sum())
        self.largest_token = _largest(arrays)

    def __len__(self) -> int:
        return len(self._ends)

    def units(self, indices: Sequence[int]) -> int:
        return int(self._units[self._documents(indices)].sum())

    def size(self, indices: Sequence[int]) -> int:
        starts, ends = self._places(indices)
        return int((ends - starts).sum())

    def batch(self, indices: Sequence[int]) -> Batch:
        """Stack sequences: ``input_ids`` and ``targets`` (the next token, or ``IGNORED``), both of shape (batch, length
        of the longest). Padding comes last, where a causal model needs no mask for it."""
        starts, ends = self._places(indices)
        batch = _Rows(len(indices), int((ends - starts).max()), self._pad_token)
        for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
            batch.fill(row, self._tokens[start:end], self._counted[start + 1 : end])
        return batch.tensors()

    def _places(self, indices: Sequence[int]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        where = self._documents(indices)
        return np.where(where > 0, self._ends[where - 1], 0), self._ends[where]

    def _documents(self, indices: Sequence[int]) -> npt.NDArray[Any]:
        where = np.asarray(indices)
        return where if self._order is None else self._order[where]


class PackedSamples:
    """Samples cut from one stream of all documents; only the last may be shorter.

    >>> arrays = to_arrays([([5, 6, 7], [True] * 3), ([8, 9], [True] * 2)], vocabulary=10, packed=True)
    >>> PackedSamples(arrays, length=4, pad_token=0, isolated=False).batch([0])["input_ids"]
    tensor([[5, 6, 7, 8]])
    """

    def __init__(self, arrays: Arrays, length: int, pad_token: int, *, isolated: bool):
        """Cut the result of ``to_arrays`` into sequences of ``length`` tokens. If ``isolated``, documents within a
        sequence are hidden from each other."""
        self._tokens, self._ends = arrays["tokens"], arrays["ends"]
        self.largest_token = _largest(arrays)
        self._length = length
        self._pad_token = pad_token
        self._isolated = isolated
        full, rest = divmod(len(self._tokens), length)
        # A sequence of one token has nothing to predict.
        self._num_sequences = (full if length > 1 else 0) + (rest > 1)

    def __len__(self) -> int:
        return self._num_sequences

    def units(self, indices: Sequence[int]) -> int:
        starts, stops = self._places(indices)
        total = int((stops - starts - 1).sum())
        if self._isolated:  # without the first tokens of documents, which another document's end would predict
            inner = np.searchsorted(self._ends, stops, side="left") - np.searchsorted(self._ends, starts, side="right")
            total -= int(inner.sum())
        return total

    def size(self, indices: Sequence[int]) -> int:
        starts, stops = self._places(indices)
        return int((stops - starts).sum())

    def batch(self, indices: Sequence[int]) -> Batch:
        """Stack sequences: ``input_ids`` and ``targets`` (the next token, or ``IGNORED``) of shape (batch, length). The
        last sequence is padded, since compiled code and CUDA graphs need a fixed shape. If documents are isolated also
        ``position_ids`` of the same shape, and ``document_ends`` of shape (batch, documents in a sequence at most): the
        last document ends with the padding."""
        starts, stops = self._places(indices)
        batch = _Rows(len(indices), min(self._length, len(self._tokens)), self._pad_token)
        for row, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            counted = np.ones(stop - start - 1, dtype=np.bool_)
            if self._isolated:
                first, last = np.searchsorted(self._ends, [start, stop], side="right")
                boundaries = self._ends[first:last] - start
                boundaries = boundaries[boundaries < stop - start]
                counted[boundaries - 1] = False
                batch.restart_positions(row, boundaries)
            batch.fill(row, self._tokens[start:stop], counted)
        return batch.tensors()

    def _places(self, indices: Sequence[int]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        starts = np.asarray(indices) * self._length
        return starts, np.minimum(starts + self._length, len(self._tokens))


def _largest(arrays: Arrays) -> int:
    """Return the largest token of all pieces that were joined."""
    return int(arrays["largest"].max())


class _Rows:
    """Rows of a batch while it is filled."""

    def __init__(self, num_rows: int, length: int, pad_token: int):
        self._input_ids = np.full((num_rows, length), pad_token, dtype=np.int64)
        self._targets = np.full((num_rows, length), IGNORED)
        self._boundaries: dict[int, npt.NDArray[Any]] = {}
        self._positions: npt.NDArray[np.int64] | None = None

    def fill(self, row: int, tokens: npt.NDArray[Any], counted: npt.NDArray[Any]) -> None:
        """Fill a row with tokens; ``counted`` masks all tokens but the first."""
        size = len(tokens)
        self._input_ids[row, :size] = tokens
        self._targets[row, : size - 1] = np.where(counted, self._input_ids[row, 1:size], IGNORED)

    def restart_positions(self, row: int, boundaries: npt.NDArray[Any]) -> None:
        """Restart the positions at each boundary; transformers derives its attention masks from them."""
        if self._positions is None:
            self._positions = np.tile(np.arange(self._input_ids.shape[1]), (len(self._input_ids), 1))
        self._boundaries[row] = boundaries
        starts = np.zeros(self._input_ids.shape[1], dtype=np.int64)
        starts[boundaries] = boundaries
        self._positions[row] -= np.maximum.accumulate(starts)

    def tensors(self) -> Batch:
        batch = {"input_ids": torch.from_numpy(self._input_ids), "targets": torch.from_numpy(self._targets)}
        if self._positions is None:
            return batch
        ends = np.full((len(self._input_ids), 1 + max(map(len, self._boundaries.values()))), self._input_ids.shape[1])
        for row, boundaries in self._boundaries.items():
            ends[row, : len(boundaries)] = boundaries
        return {
            **batch,
            "position_ids": torch.from_numpy(self._positions),
            "document_ends": torch.from_numpy(ends),
        }
