"""Batches in the order of the data, made ready ahead of their use where that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from sweeps_train.config.data import Loader
from sweeps_train.data.sampler import Batch, SampleOrder, Samples, in_batches
from sweeps_train.random_state import seed_all

Share = tuple[int, Sequence[int]]
"""A position in the order of the data, and which samples this worker takes of the global batch there."""


def feed(
    samples: Samples,
    order: SampleOrder,
    share: Callable[[Sequence[int]], Sequence[int]],
    positions: range,
    micro_batch_size: int,
    loader: Loader,
    device: torch.device,
    seed: int,
) -> Iterator[list[Batch]]:
    """This worker's micro batches of one global batch after another, in the CPU's memory.

    Args:
        samples: What is learned from.
        order: Which sample is where.
        share: This worker's part of a global batch.
        positions: Of the first samples of all global batches to come; its step is their size.
        micro_batch_size: Samples in each.
        loader: How batches are made ready.
        device: Where they will go.
        seed: With the position it seeds those processes that read ahead, whose data sets may draw random numbers: the
            same after a resumption.
    """
    shares = ((position, share(order.take(position, positions.step))) for position in positions)
    reader = _Reader(samples, micro_batch_size, seed)
    if loader.num_workers == 0 and not _pins(loader, device):
        return (reader.__getitems__(each) for each in shares)
    batches: DataLoader[list[Batch]] = DataLoader(
        reader,
        batch_sampler=shares,  # type: ignore[arg-type] # any iterable of what the data set understands will do
        num_workers=loader.num_workers,
        prefetch_factor=loader.prefetch if loader.num_workers else None,
        pin_memory=_pins(loader, device),
        collate_fn=_as_they_are,
        generator=torch.Generator(),  # else it would draw from the state that dropout draws from
    )
    return iter(batches)


def _pins(loader: Loader, device: torch.device) -> bool:
    return device.type == "cuda" if loader.pin_memory == "auto" else loader.pin_memory


def _as_they_are(batches: list[Batch]) -> list[Batch]:
    return batches


class _Reader(Dataset[list[Batch]]):
    def __init__(self, samples: Samples, micro_batch_size: int, seed: int):
        self._samples = samples
        self._micro_batch_size = micro_batch_size
        self._seed = seed

    def __getitems__(self, share: Share) -> list[Batch]:
        position, indices = share
        if get_worker_info() is not None:
            seed_all(self._seed, position, indices[0])
        return [self._samples.batch(each) for each in in_batches(indices, self._micro_batch_size)]
