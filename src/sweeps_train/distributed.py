"""The group of processes that train one model, and collective operations among them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")


@dataclass(frozen=True)
class Workers:
    """This worker's rank in a group of workers: torch's default process group, a part of it, or one process alone."""

    rank: int
    size: int
    device: torch.device
    group: dist.ProcessGroup | None = None
    """Process group; None is torch's default group."""

    @classmethod
    def current(cls) -> Workers:
        """The running process group, whoever has made it (Ray Train, torchrun, a test), and this worker's device."""
        device = worker_device()
        distributed = dist.is_available() and dist.is_initialized()
        rank, size = (dist.get_rank(), dist.get_world_size()) if distributed else (0, 1)
        if device.type == "cuda":
            torch.cuda.set_device(device)  # NCCL sends objects through the current device
        elif "OMP_NUM_THREADS" not in os.environ:
            # By default each process uses all cores, and several on one machine would slow each other down.
            on_this_machine = int(os.environ.get("LOCAL_WORLD_SIZE", size))
            torch.set_num_threads(max(1, _cores() // on_this_machine))
        return cls(rank, size, device)

    def sum(self, values: Sequence[float]) -> list[float]:
        """Sum values over all workers, one by one; every worker must call it with as many values.

        >>> Workers(rank=0, size=1, device=torch.device("cpu")).sum([1, 2.5])
        [1.0, 2.5]
        """
        total = self.sum_tensor(torch.tensor(values, dtype=torch.float64, device=self.device))
        return [float(value) for value in total.tolist()]

    def max(self, values: Sequence[float]) -> list[float]:
        """Largest values of any worker, one by one; every worker must call it with as many values.

        >>> Workers(rank=0, size=1, device=torch.device("cpu")).max([1, 2.5])
        [1.0, 2.5]
        """
        largest = torch.tensor(values, dtype=torch.float64, device=self.device)
        if self.size > 1:
            dist.all_reduce(largest, dist.ReduceOp.MAX)
        return [float(value) for value in largest.tolist()]

    def sum_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum a tensor over all workers, in its place; every worker must call it with the same shape."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def broadcast(self, value: T) -> T:
        """Rank 0's value, on every worker."""
        box = [value]
        if self.size > 1:
            dist.broadcast_object_list(box, src=0)
        return box[0]

    def gather(self, value: T) -> list[T]:
        """The values of all workers in the order of ranks, on rank 0; an empty list elsewhere."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size if self.rank == 0 else []
        dist.gather_object(value, values or None, dst=0)
        return values

    def shard(self, indices: Sequence[int]) -> Sequence[int]:
        """This worker's samples: every worker has different ones, and each sample is one worker's.

        >>> Workers(rank=1, size=2, device=torch.device("cpu")).shard(range(7))
        range(1, 7, 2)
        """
        return indices[self.rank :: self.size]


def worker_device() -> torch.device:
    """Device on which this worker trains."""
    # Ray Train sets this variable of Hugging Face Accelerate to the device of the worker. A worker without a GPU may
    # still see those of its machine.
    assigned = os.environ.get("ACCELERATE_TORCH_DEVICE")
    if assigned:
        return torch.device(assigned)
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
