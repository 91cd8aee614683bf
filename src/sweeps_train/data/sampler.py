"""What the training loop asks of a data set, and the order in which it takes samples from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

Batch = dict[str, torch.Tensor]


class Samples(Protocol):
    """A data set that every worker holds or can read whole."""

    def __len__(self) -> int:
        """Number of samples."""

    def batch(self, indices: Sequence[int]) -> Batch:
        """These samples, stacked; first dimension of every tensor: ``len(indices)``."""

    def units(self, indices: Sequence[int]) -> int:
        """Terms that these samples add to the loss: tokens that count, or samples.

        Known without reading the batch, so that every worker knows those of all others without asking.
        """

    def size(self, indices: Sequence[int]) -> int:
        """Tokens, or samples, that go through the model, without padding: what speed is measured in."""


class SampleOrder:
    """An endless sequence of samples: every epoch is a new order of all, epoch follows on epoch without a gap.

    The sample at a position follows from seed and position alone. So training resumes exactly from the number of
    samples consumed, whatever the number of workers, and no sample is left out at an epoch's end.

    Up to ``window`` samples, an epoch is a permutation. Of more, it is a sequence of windows, each a permutation of
    blocks of neighbours from all over the data: no list of all samples is held, and a disk is read in one region after
    another.
    """

    def __init__(self, num_samples: int, seed: int, *, window: int = 2**20, block: int = 2**10):
        """
        Args:
            num_samples: In an epoch.
            seed: Of all permutations.
            window: Samples that are mixed with each other; a multiple of ``block``.
            block: Samples that stay in the same window.
        """
        self._num_samples = num_samples
        self._seed = seed
        self._window_size = window
        self._block = block
        self._drawn: tuple[int, int] | None = None
        self._window: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def take(self, position: int, count: int) -> list[int]:
        """Indices of the ``count`` samples from ``position`` (samples consumed before)."""
        taken: list[int] = []
        while len(taken) < count:
            epoch, place = divmod(position + len(taken), self._num_samples)
            number, first = divmod(place, self._window_size)
            if self._drawn != (epoch, number):
                self._window, self._drawn = self._draw(epoch, number), (epoch, number)
            taken += self._window[first : first + count - len(taken)].tolist()
        return taken

    def _draw(self, epoch: int, number: int) -> npt.NDArray[np.int64]:
        if self._num_samples <= self._window_size:
            return np.random.default_rng([self._seed, epoch]).permutation(self._num_samples)
        # Blocks that are whole change places; the rest stays behind them, so that every window but the last is full.
        whole, rest = divmod(self._num_samples, self._block)
        places = self._window_size // self._block
        blocks = np.random.default_rng([self._seed, epoch]).permutation(whole)[number * places : (number + 1) * places]
        samples = (blocks[:, None] * self._block + np.arange(self._block)).ravel()
        if number == (self._num_samples - 1) // self._window_size and rest:
            samples = np.concatenate([samples, np.arange(whole * self._block, self._num_samples)])
        return np.random.default_rng([self._seed, epoch, number]).permutation(samples)


def in_batches(indices: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """The indices in runs of ``size``, the last of which may be shorter."""
    for start in range(0, len(indices), size):
        yield indices[start : start + size]


def held_out_indices(num_samples: int, fraction: float) -> tuple[list[int], list[int]]:
    """Splits ``range(num_samples)`` into training and held-out indices, each in ascending order.

    The same for every seed of training, so that trials are measured on the same samples.
    """
    num_held_out = min(max(1, round(num_samples * fraction)), num_samples)
    mixed = np.random.default_rng(0).permutation(num_samples)
    return sorted(mixed[num_held_out:].tolist()), sorted(mixed[:num_held_out].tolist())
