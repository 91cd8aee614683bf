"""Batches in the order of the data, read ahead in other processes if configured."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from sweeps_train.data.read_ahead import ReadAhead
from sweeps_train.data.sample_order import Batch, SampleOrder, Samples, in_batches
from sweeps_train.devices.device_operations import pins_memory
from sweeps_train.steps.random_state import seed_all

Share = tuple[int, Sequence[int]]
"""Position in the order of the data, and the indices of this worker's samples of the global batch there."""


def load_micro_batches(
    samples: Samples,
    share: Callable[[Sequence[int]], Sequence[int]],
    positions: range,
    micro_batch_size: int,
    read_ahead: ReadAhead,
    pin_memory: bool | Literal["auto"],
    device: torch.device,
    seed: int,
) -> Iterator[list[Batch]]:
    """Yield this worker's micro batches of one global batch after another, on the CPU.

    Args:
        samples: Training data.
        share: Selects this worker's samples of a global batch.
        positions: Positions of the first samples of all global batches to come; the step of this range is the batch
            size.
        micro_batch_size: Samples in a micro batch.
        read_ahead: Number of processes and batches that are read ahead.
        pin_memory: Whether to put batches into page-locked memory; auto: if that makes copies to the device faster.
        device: Device that the batches will be copied to.
        seed: Seeds the order of the samples, and with their position the processes that read ahead, since data sets may
            draw random numbers; a resumed training draws the same.
    """
    order = SampleOrder(len(samples), seed)
    shares = ((position, share(order.take(position, positions.step))) for position in positions)
    reader = _Reader(samples, micro_batch_size, seed)
    pins = pins_memory(device) if pin_memory == "auto" else pin_memory
    if read_ahead.processes == 0 and not pins:
        return (reader.__getitems__(each) for each in shares)
    batches: DataLoader[list[Batch]] = DataLoader(
        reader,
        batch_sampler=shares,  # type: ignore[arg-type] # any iterable of arguments of __getitems__ will do
        num_workers=read_ahead.processes,
        prefetch_factor=read_ahead.prefetch if read_ahead.processes else None,
        pin_memory=pins,
        collate_fn=_identity,
        worker_init_fn=_take_own_positions,
        generator=torch.Generator(),  # the default one draws from torch's state, which dropout uses
    )
    return iter(batches)


def _identity(batches: list[Batch]) -> list[Batch]:
    return batches


def _take_own_positions(_: int) -> None:
    """Reopen the files that this process has inherited: a data set may have opened one, and processes that share its
    position would read at each other's places."""
    descriptors = Path("/proc/self/fd")
    for entry in descriptors.iterdir() if descriptors.is_dir() else ():  # only Linux has it
        descriptor = int(entry.name)
        with contextlib.suppress(OSError):  # such as the one by which this folder is read
            is_read = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
            if is_read and stat.S_ISREG(os.fstat(descriptor).st_mode):
                own = os.open(entry, os.O_RDONLY)
                os.lseek(own, os.lseek(descriptor, 0, os.SEEK_CUR), os.SEEK_SET)
                os.dup2(own, descriptor, inheritable=False)
                os.close(own)


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
