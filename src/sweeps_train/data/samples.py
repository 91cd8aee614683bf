"""What the training loop asks of a data set, and the order in which it takes samples from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
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
    """An endless sequence of samples: every epoch is a new permutation, epoch follows on epoch without a gap.

    The sample at a position follows from seed and position alone. So training resumes exactly from the number of
    samples consumed, whatever the number of workers, and no sample is left out at an epoch's end.
    """

    def __init__(self, num_samples: int, seed: int):
        self._num_samples = num_samples
        self._seed = seed
        self._epoch = -1
        self._permutation: list[int] = []

    def take(self, position: int, count: int) -> list[int]:
        """Indices of the ``count`` samples from ``position`` (samples consumed before)."""
        return [self._at(position + offset) for offset in range(count)]

    def _at(self, position: int) -> int:
        epoch, place = divmod(position, self._num_samples)
        if epoch != self._epoch:
            self._permutation = np.random.default_rng([self._seed, epoch]).permutation(self._num_samples).tolist()
            self._epoch = epoch
        return self._permutation[place]


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
