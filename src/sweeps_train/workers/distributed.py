"""The group of processes that train one model, and collective operations among them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from sweeps_train.compat.torch import default_store
from sweeps_train.devices.device_operations import is_accelerator, sum_type
from sweeps_train.devices.worker_device import worker_device

T = TypeVar("T")

MEET_WITHIN = timedelta(days=1)
"""Maximum time that workers wait for each other to prepare their data and model; Sweeps ends them long before that."""


@dataclass(frozen=True)
class Workers:
    """A group of workers and this worker's rank in it: torch's default process group, a part of it, or one process
    alone."""

    rank: int
    size: int
    device: torch.device
    group: dist.ProcessGroup | None = None
    """Process group; None is torch's default group."""

    @classmethod
    def current(cls) -> Workers:
        """Return the running process group, whether Ray Train, torchrun or a test created it, and this worker's
        device."""
        device = worker_device()
        distributed = dist.is_available() and dist.is_initialized()
        rank, size = (dist.get_rank(), dist.get_world_size()) if distributed else (0, 1)
        if is_accelerator(device):
            torch.accelerator.set_device_index(device)  # through which NCCL sends objects
        elif "OMP_NUM_THREADS" not in os.environ:
            # By default each process uses all cores, and several on one machine would slow each other down.
            on_this_machine = int(os.environ.get("LOCAL_WORLD_SIZE", size))
            torch.set_num_threads(max(1, usable_cores() // on_this_machine))
        return cls(rank, size, device)

    def sum(self, values: Sequence[float]) -> list[float]:
        """Sum values element by element over all workers; every worker must pass the same number of values."""
        return [sum(each) for each in zip(*self.all_gather(values), strict=True)]

    def max(self, values: Sequence[float]) -> list[float]:
        """Return the maximum of values element by element over all workers; every worker must pass the same number of
        values."""
        return [max(each) for each in zip(*self.all_gather(values), strict=True)]

    def all_gather(self, values: Sequence[float]) -> list[list[float]]:
        """Return the values of each worker, by rank; every worker must pass the same number of values."""
        own = torch.tensor(values, dtype=sum_type(self.device), device=self.device)
        by_worker = own.new_empty((self.size, len(values)))
        if self.size > 1:
            dist.all_gather(list(by_worker), own)
        else:
            by_worker[0] = own
        rows: list[list[float]] = by_worker.tolist()
        return rows

    def sum_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum a tensor over all workers in place; its shape must be equal on every worker."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def broadcast(self, value: T) -> T:
        """Return rank 0's value on every worker."""
        box = [value]
        if self.size > 1:
            dist.broadcast_object_list(box, src=0)
        return box[0]

    def gather(self, value: T) -> list[T]:
        """Return the values of all workers in the order of ranks, on rank 0; an empty list elsewhere."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size if self.rank == 0 else []
        dist.gather_object(value, values or None, dst=0)
        return values

    def meet(self, within: timedelta = MEET_WITHIN) -> None:
        """Barrier without the group's timeout: wait until all workers have called this, at most for the time
        ``within``.

        It uses the store of the process group, since a collective operation, even a barrier, would fail after the
        group's timeout, and with NCCL would end the process.

        Raises:
            TimeoutError: Some workers have not called it in time; the message names them.
        """
        if self.size == 1:
            return
        store = default_store()
        meeting = store.add(f"sweeps/meetings/{self.rank}", 1)  # each worker counts, and all come to the same number
        keys = [f"sweeps/meetings/{meeting}/{rank}" for rank in range(self.size)]
        store.set(keys[self.rank], "here")
        try:
            store.wait(keys, within)
        except RuntimeError as error:  # the type depends on the kind of store
            missing = [f"worker {rank}" for rank, key in enumerate(keys) if not store.check([key])]
            if not missing:
                raise
            raise TimeoutError(f"{', '.join(missing)} did not prepare data and model within {within}") from error
        store.delete_key(f"sweeps/meetings/{meeting - 1}/{self.rank}")  # all workers have seen the previous meeting

    def shard(self, indices: Sequence[int]) -> Sequence[int]:
        """Return this worker's share of the indices, which no other worker has.

        >>> Workers(rank=1, size=2, device=torch.device("cpu")).shard(range(7))
        range(1, 7, 2)
        """
        return indices[self.rank :: self.size]


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
