"""Memory that this worker may use: its share of a GPU, or of the machine when it trains on CPUs."""

from __future__ import annotations

import os

import torch

from sweeps_train.devices.device_operations import counts_memory
from sweeps_train.devices.worker_device import worker_device
from sweeps_train.memory.machine_memory import machine_memory

OUTSIDE_TORCH = 2**29
"""Bytes of a GPU that a process needs in addition to torch's tensors: CUDA's context, and kernels of its libraries."""
_CROWDED = 0.1
"""Part of a GPU that other processes may hold beyond their shares before this process counts as crowded out."""

_share: float | None = None
"""Share of this process, if one was set."""


def limit_memory(share: float) -> None:
    """Limit this process from now on to a share of its device's memory, above 0 and up to 1; of the machine's memory
    where it has no GPU.

    Torch raises an out-of-memory error where tensors would need more of a GPU, so that processes that share one do not
    take each other's memory. On CPUs nothing is enforced; the share is only used for planning.
    """
    global _share  # noqa: PLW0603 - like torch's own limit it belongs to the process
    _share = share
    device = worker_device()
    if counts_memory(device) and share < 1:
        module = torch.get_device_module(device)
        total = module.get_device_properties(device).total_memory
        module.set_per_process_memory_fraction(max(share - OUTSIDE_TORCH / total, share / 2), device)


def usable_memory(device: torch.device) -> int:
    """Return the bytes that tensors of this process may use: its share of the device's total, or of the slice's for a
    slice of a GPU (MIG), regardless of what is free now."""
    if counts_memory(device):
        module = torch.get_device_module(device)
        total = module.get_device_properties(device).total_memory
        return int(total * module.get_per_process_memory_fraction(device))
    share = _share if _share is not None else 1 / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return int(machine_memory() * share)


def is_crowded(device: torch.device) -> bool:
    """Whether other processes use more of a GPU than this one's share leaves them, so that they may have caused an
    out-of-memory error."""
    module = torch.get_device_module(device)
    free, total = module.mem_get_info(device)
    others = total - free - module.memory_reserved(device)
    left = total - usable_memory(device)
    return bool(others > left + _CROWDED * total)
