"""Torch's operations on a device of any kind: a GPU of NVIDIA or AMD (``cuda``), Intel (``xpu``), Apple (``mps``) or
another accelerator that torch knows; or the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity

_PINNED = ("cuda", "xpu")
"""Accelerators to which pinned memory is copied faster."""


def is_accelerator(device: torch.device) -> bool:
    """Whether a device is not the CPU."""
    return device.type != "cpu"


def pins_memory(device: torch.device) -> bool:
    """Whether copies to the device are faster from pinned memory."""
    return device.type in _PINNED


def counts_memory(device: torch.device) -> bool:
    """Whether the device has its own memory, whose use torch counts."""
    return is_accelerator(device) and hasattr(torch.get_device_module(device), "max_memory_allocated")


def sum_type(device: torch.device) -> torch.dtype:
    """Return the dtype for sums on the device: float64, or float32 on Apple's GPUs, which lack float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def synchronize(device: torch.device) -> None:
    """Wait until the device has computed everything."""
    if is_accelerator(device):
        torch.accelerator.synchronize(device)


def empty_cache(device: torch.device) -> None:
    """Return memory that torch holds in reserve to the device."""
    if is_accelerator(device):
        torch.get_device_module(device).empty_cache()


def reset_peak_memory(device: torch.device) -> None:
    """Reset the peak memory, where torch counts it."""
    if counts_memory(device):
        torch.get_device_module(device).reset_peak_memory_stats(device)


def peak_memory(device: torch.device) -> int:
    """Return the peak bytes of tensors, on a device for which ``counts_memory`` is true."""
    return int(torch.get_device_module(device).max_memory_allocated(device))


def peak_reserved_memory(device: torch.device) -> int:
    """Return the peak bytes that torch has reserved, on a device for which ``counts_memory`` is true."""
    return int(torch.get_device_module(device).max_memory_reserved(device))


def name_of(device: torch.device) -> str:
    """Return the name of an accelerator as its driver reports it, otherwise the kind of device."""
    module: Any = torch.get_device_module(device)
    return str(module.get_device_name(device)) if hasattr(module, "get_device_name") else device.type


def profiled_activities(device: torch.device) -> list[ProfilerActivity]:
    """Return the activities with which torch's profiler records computations on the device."""
    of_device = {"cuda": [ProfilerActivity.CUDA], "xpu": [ProfilerActivity.XPU]}.get(device.type, [])
    return [ProfilerActivity.CPU, *of_device]


def random_state_of(device: torch.device) -> torch.Tensor | None:
    """Return the state of the device's random numbers; None for the CPU, whose state is torch's own."""
    if not is_accelerator(device):
        return None
    state: torch.Tensor = torch.get_device_module(device).get_rng_state(*_index(device))
    return state


def set_random_state_of(device: torch.device, state: torch.Tensor) -> None:
    """Restore the result of ``random_state_of`` on a device of the same kind."""
    torch.get_device_module(device).set_rng_state(state, *_index(device))


def _index(device: torch.device) -> tuple[torch.device, ...]:
    return () if device.type == "mps" else (device,)  # there is only one


@torch.no_grad()
def copy_all(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], device: torch.device) -> None:
    """Copy tensors of the device or the CPU into CPU tensors, given as pairs of target and source, and wait until all
    are copied. Copies from the device go through a stream of their own."""
    if not pins_memory(device):
        for target, source in pairs:
            target.copy_(source)
        return
    stream = torch.Stream(device)
    stream.wait_stream(torch.accelerator.current_stream(device))
    with stream:
        for target, source in pairs:
            target.copy_(source, non_blocking=True)
    stream.synchronize()
