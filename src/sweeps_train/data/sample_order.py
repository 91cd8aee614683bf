"""The interface of a data set to the training loop, and the order of its samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

Batch = dict[str, torch.Tensor]


class Samples(Protocol):
    """A data set that every worker can read completely."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def batch(self, indices: Sequence[int]) -> Batch:
        """Stack samples; the first dimension of every tensor is ``len(indices)``."""

    def units(self, indices: Sequence[int]) -> int:
        """Return the number of terms that these samples add to the loss: counted tokens, or samples.

        Known without reading the batch, so that every worker can compute it for all others.
        """

    def size(self, indices: Sequence[int]) -> int:
        """Return the number of tokens without padding, or of samples, that pass through the model: the unit of
        speed."""


class SampleOrder:
    """An endless order of samples: every epoch is another permutation of all samples, without a gap between epochs.

    The sample at a position follows from seed and position alone. So a training can resume exactly after a number of
    samples, with any number of workers, and no sample is left out at an epoch's end.

    Up to ``window`` samples, an epoch is one permutation. With more samples, it is a sequence of windows, each a
    permutation of randomly chosen blocks of neighbouring samples: this needs no list of all samples, and reads from few
    regions of a disk at a time.
    """

    def __init__(self, num_samples: int, seed: int, *, window: int = 2**20, block: int = 2**10):
        """
        Args:
            num_samples: Number of samples in an epoch.
            seed: Seed of all permutations.
            window: Number of samples that are shuffled together; a multiple of ``block``.
            block: Number of neighbouring samples that stay in the same window.
        """
        self._num_samples = num_samples
        self._seed = seed
        self._window_size = window
        self._block = block
        self._drawn: tuple[int, int] | None = None
        self._window: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def take(self, position: int, count: int) -> list[int]:
        """Return the indices of the ``count`` samples from ``position``, the number of samples consumed before.

        >>> order = SampleOrder(3, seed=0)
        >>> sorted(order.take(0, 3)), order.take(2, 3) == order.take(0, 5)[2:]
        ([0, 1, 2], True)
        """
        taken: list[int] = []
        while len(taken) < count:
            epoch, offset = divmod(position + len(taken), self._num_samples)
            number, first = divmod(offset, self._window_size)
            if self._drawn != (epoch, number):
                self._window, self._drawn = self._draw(epoch, number), (epoch, number)
            taken += self._window[first : first + count - len(taken)].tolist()
        return taken

    def _draw(self, epoch: int, number: int) -> npt.NDArray[np.int64]:
        if self._num_samples <= self._window_size:
            return np.random.default_rng([self._seed, epoch]).permutation(self._num_samples)
        # Full blocks are permuted; the rest stays behind them, so that every window but the last is full.
        full, rest = divmod(self._num_samples, self._block)
        count = self._window_size // self._block
        blocks = np.random.default_rng([self._seed, epoch]).permutation(full)[number * count : (number + 1) * count]
        samples = (blocks[:, None] * self._block + np.arange(self._block)).ravel()
        if number == (self._num_samples - 1) // self._window_size and rest:
            samples = np.concatenate([samples, np.arange(full * self._block, self._num_samples)])
        return np.random.default_rng([self._seed, epoch, number]).permutation(samples)


def in_batches(indices: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Yield slices of ``size`` indices; the last one may be shorter.

    >>> list(in_batches(range(5), 2))
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    for start in range(0, len(indices), size):
        yield indices[start : start + size]


def longest_first(samples: Samples, indices: Sequence[int]) -> list[int]:
    """Order samples by size, longest first, so that neighbours need little padding and workers that take every n-th
    sample get equal work."""
    return sorted(indices, key=lambda index: (-samples.size([index]), index))


def held_out_indices(num_samples: int, fraction: float) -> tuple[list[int], list[int]]:
    """Split ``range(num_samples)`` into training and held-out indices, each in ascending order.

    The split does not depend on the seed of the training, so that trials are compared on the same samples.

    Example:
        >>> train, held_out = held_out_indices(10, 0.2)
        >>> len(train), len(held_out)
        (8, 2)
    """
    num_held_out = min(max(1, round(num_samples * fraction)), num_samples)
    mixed = np.random.default_rng(0).permutation(num_samples)
    return sorted(mixed[num_held_out:].tolist()), sorted(mixed[:num_held_out].tolist())
