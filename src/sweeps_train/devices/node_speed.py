"""Speed of a node: a matrix product on each of its devices, and an all-reduce between nodes.

DLRover runs the same two measurements before a job to find slow or broken nodes (see its design of the network check).
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

REPEATS = 5
CPU_SIZE, GPU_SIZE = 1024, 8192
"""Rows and columns of the matrices on a CPU core and on a GPU, where a product takes some hundredths of a second."""
CPU_MIB, GPU_MIB = 16, 256
"""MiB that each node contributes to an all-reduce, on CPUs and on GPUs."""
MEETS_WITHIN_S = 15.0
"""Maximum seconds for the nodes of a group to find each other, and for one all-reduce."""


@dataclass(frozen=True)
class Meeting:
    """Rendezvous of a group of nodes, as one of them sees it."""

    address: str
    port: int
    rank: int
    size: int
    """Number of nodes in the group."""


def matrix_product_s() -> list[float]:
    """Return the median seconds of a matrix product on each GPU of this process; without a GPU, on one CPU thread."""
    import torch

    gpus = torch.cuda.device_count()
    devices = [torch.device("cuda", index) for index in range(gpus)] or [torch.device("cpu")]
    return [_product_s(device) for device in devices]


def _product_s(device: torch.device) -> float:
    import torch

    on_gpu = device.type == "cuda"
    size = GPU_SIZE if on_gpu else CPU_SIZE
    left = torch.ones(size, size, device=device, dtype=torch.bfloat16 if on_gpu else torch.float32)
    return _median_s(lambda: torch.matmul(left, left), device)


def _median_s(action: Callable[[], object], device: torch.device) -> float:
    import torch

    taken = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - began)
    return median(taken[1:])  # the first one starts threads and chooses a kernel


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def all_reduce_s(meeting: Meeting) -> float:
    """Return the median seconds of an all-reduce of ``CPU_MIB`` (``GPU_MIB`` on GPUs) within a group of nodes.

    Raises:
        Exception: The nodes did not find each other within ``MEETS_WITHIN_S``, or the all-reduce failed.
    """
    import torch
    import torch.distributed as dist

    on_gpu = torch.cuda.device_count() > 0
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=f"tcp://{meeting.address}:{meeting.port}",
        rank=meeting.rank,
        world_size=meeting.size,
        timeout=timedelta(seconds=MEETS_WITHIN_S),
    )
    try:
        given = torch.ones((GPU_MIB if on_gpu else CPU_MIB) * 2**18, device="cuda" if on_gpu else "cpu")
        return _median_s(lambda: (dist.all_reduce(given), given.fill_(1.0)), given.device)
    finally:
        dist.destroy_process_group()
