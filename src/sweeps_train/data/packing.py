"""Sequences of tokens, out of arrays that lie in memory or are mapped from files."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sweeps_train.data.array_cache import Arrays
from sweeps_train.data.encoder import Tokens
from sweeps_train.data.sampler import Batch

IGNORED = -100
"""Target of a position that adds nothing to the loss (torch's cross-entropy skips it)."""


def to_arrays(documents: Iterable[Tokens], vocabulary: int, *, packed: bool) -> Arrays:
    """Documents one after another.

    Args:
        documents: Their tokens.
        vocabulary: Number of different tokens.
        packed: They are one stream, all of which counts. Else each is a sequence, and those without a token to predict
            (the first one never is) teach nothing, and are left out.

    Returns:
        ``tokens`` of the length of all documents together, and ``ends``, where each document ends. If not packed also
        ``counted``, as long as the tokens; ``units``, how many tokens of each document count; and ``left_out``, of one
        number.
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
    arrays: Arrays = {"tokens": np.array(tokens), "ends": np.array(ends, dtype=np.int64)}
    if packed:
        return arrays
    return {
        **arrays,
        "counted": np.frombuffer(bytes(counted), dtype=np.bool_),
        "units": np.array(units, dtype=np.int64),
        "left_out": np.array([left_out]),
    }


class TextSamples:
    """Each document is a sequence."""

    def __init__(self, arrays: Arrays, pad_token: int):
        """
        Args:
            arrays: What ``to_arrays`` returns; only read.
            pad_token: Fills up the shorter sequences of a batch.
        """
        self._tokens, self._counted = arrays["tokens"], arrays["counted"]
        self._ends, self._units = arrays["ends"], arrays["units"]
        self._pad_token = pad_token
        self.num_left_out = int(arrays["left_out"].sum())

    def __len__(self) -> int:
        return len(self._ends)

    def units(self, indices: Sequence[int]) -> int:
        return int(self._units[indices].sum())

    def size(self, indices: Sequence[int]) -> int:
        starts, ends = self._places(indices)
        return int((ends - starts).sum())

    def batch(self, indices: Sequence[int]) -> Batch:
        """``input_ids`` and ``targets`` (the next token, or ``IGNORED``), both (batch, length of the longest);
        ``attention_mask`` of the same shape if anything is padded."""
        starts, ends = self._places(indices)
        batch = _Rows(len(indices), int((ends - starts).max()), self._pad_token)
        for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
            batch.fill(row, self._tokens[start:end], self._counted[start + 1 : end])
        return batch.tensors()

    def _places(self, indices: Sequence[int]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        where = np.asarray(indices)
        return np.where(where > 0, self._ends[where - 1], 0), self._ends[where]


class PackedSamples:
    """All documents are one stream, cut into sequences; the last one may be shorter."""

    def __init__(self, arrays: Arrays, length: int, pad_token: int, *, isolated: bool):
        """
        Args:
            arrays: What ``to_arrays`` returns; only read.
            length: Tokens in a sequence.
            pad_token: Fills up the last sequence.
            isolated: Documents within a sequence do not see each other.
        """
        self._tokens, self._ends = arrays["tokens"], arrays["ends"]
        self._length = length
        self._pad_token = pad_token
        self._isolated = isolated
        whole, rest = divmod(len(self._tokens), length)
        # A sequence of one token has nothing to predict.
        self._num_sequences = (whole if length > 1 else 0) + (rest > 1)

    def __len__(self) -> int:
        return self._num_sequences

    def units(self, indices: Sequence[int]) -> int:
        starts, stops = self._places(indices)
        total = int((stops - starts - 1).sum())
        if self._isolated:  # what would be predicted from another document's end
            inner = np.searchsorted(self._ends, stops, side="left") - np.searchsorted(self._ends, starts, side="right")
            total -= int(inner.sum())
        return total

    def size(self, indices: Sequence[int]) -> int:
        starts, stops = self._places(indices)
        return int((stops - starts).sum())

    def batch(self, indices: Sequence[int]) -> Batch:
        """``input_ids`` and ``targets`` (the next token, or ``IGNORED``), both (batch, length of the longest); and of
        the same shape ``position_ids`` where documents are isolated, or ``attention_mask`` if anything is padded."""
        starts, stops = self._places(indices)
        batch = _Rows(len(indices), int((stops - starts).max()), self._pad_token)
        for row, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            counted = np.ones(stop - start - 1, dtype=np.bool_)
            if self._isolated:
                first, last = np.searchsorted(self._ends, [start, stop], side="right")
                boundaries = self._ends[first:last] - start
                boundaries = boundaries[boundaries < stop - start]
                counted[boundaries - 1] = False
                batch.begin_anew(row, boundaries)
            batch.fill(row, self._tokens[start:stop], counted)
        return batch.tensors()

    def _places(self, indices: Sequence[int]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        starts = np.asarray(indices) * self._length
        return starts, np.minimum(starts + self._length, len(self._tokens))


class _Rows:
    """A batch that is being filled."""

    def __init__(self, num_rows: int, length: int, pad_token: int):
        self._input_ids = np.full((num_rows, length), pad_token, dtype=np.int64)
        self._targets = np.full((num_rows, length), IGNORED)
        self._sizes = np.zeros(num_rows, dtype=np.int64)
        self._positions: npt.NDArray[np.int64] | None = None

    def fill(self, row: int, tokens: npt.NDArray[Any], counted: npt.NDArray[Any]) -> None:
        """``counted`` is of the tokens from the second one on."""
        size = len(tokens)
        self._input_ids[row, :size] = tokens
        self._targets[row, : size - 1] = np.where(counted, self._input_ids[row, 1:size], IGNORED)
        self._sizes[row] = size

    def begin_anew(self, row: int, boundaries: npt.NDArray[Any]) -> None:
        """Positions count from each boundary on; transformers derives from them who sees whom."""
        if self._positions is None:
            self._positions = np.tile(np.arange(self._input_ids.shape[1]), (len(self._sizes), 1))
        began = np.zeros(self._input_ids.shape[1], dtype=np.int64)
        began[boundaries] = boundaries
        self._positions[row] -= np.maximum.accumulate(began)

    def tensors(self) -> Batch:
        batch = {"input_ids": torch.from_numpy(self._input_ids), "targets": torch.from_numpy(self._targets)}
        length = self._input_ids.shape[1]
        if self._positions is not None:  # padding comes last, where nothing that counts can see it
            return {**batch, "position_ids": torch.from_numpy(self._positions)}
        if (self._sizes == length).all():
            return batch  # attention is faster without a mask
        mask = (np.arange(length) < self._sizes[:, None]).astype(np.int64)
        return {**batch, "attention_mask": torch.from_numpy(mask)}
