"""The processes that train one model together: who they are, and what they tell each other."""

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
    """This worker among all: those of torch's default process group, or one process alone."""

    rank: int
    size: int
    device: torch.device
    group: dist.ProcessGroup | None = None
    """None: torch's default group."""

    @classmethod
    def current(cls) -> Workers:
        """The running process group, whoever made it (Ray Train, torchrun, a test), and this worker's device."""
        device = _device()
        distributed = dist.is_available() and dist.is_initialized()
        rank, size = (dist.get_rank(), dist.get_world_size()) if distributed else (0, 1)
        if device.type == "cuda":
            torch.cuda.set_device(device)  # NCCL sends objects through the current device
        elif "OMP_NUM_THREADS" not in os.environ:
            # torch takes every core for each process, and several on one machine would get in each other's way.
            on_this_machine = int(os.environ.get("LOCAL_WORLD_SIZE", size))
            torch.set_num_threads(max(1, _cores() // on_this_machine))
        return cls(rank, size, device)

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sum over all workers, value by value; every worker must call it with as many values."""
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        if self.size > 1:
            dist.all_reduce(total)
        return [float(value) for value in total.tolist()]

    def from_first(self, value: T) -> T:
        """Rank 0's value, on every worker."""
        box = [value]
        if self.size > 1:
            dist.broadcast_object_list(box, src=0)
        return box[0]

    def gather(self, value: T) -> list[T]:
        """Every worker's value in the order of ranks, on rank 0; elsewhere an empty list."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size if self.rank == 0 else []
        dist.gather_object(value, values or None, dst=0)
        return values

    def share(self, indices: Sequence[int]) -> Sequence[int]:
        """This worker's part of the samples: disjoint over the workers, all of them together, nothing twice."""
        return indices[self.rank :: self.size]


def _device() -> torch.device:
    # Ray Train says by this variable (of Hugging Face Accelerate) which device a worker was given. A worker without
    # a GPU may still see those of its machine.
    given = os.environ.get("ACCELERATE_TORCH_DEVICE")
    if given:
        return torch.device(given)
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
