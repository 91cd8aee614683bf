"""Use of the machine by a worker process."""

from __future__ import annotations

import math
from functools import cache

import psutil
import torch

MIB = 2**20


@cache
def _process() -> psutil.Process:
    process = psutil.Process()
    process.cpu_percent()  # the first call has nothing to compare with
    return process


def system_metrics(device: torch.device) -> dict[str, float]:
    """CPU use since the last call (percent of one core), resident memory and peak GPU memory (MiB) of this process, and
    the load of its GPU (percent; NaN without the extra ``gpu``). The same names on all workers."""
    process = _process()
    metrics = {
        "system/cpu_percent": process.cpu_percent(),
        "system/memory_mib": process.memory_info().rss / MIB,
    }
    if device.type == "cuda":
        metrics["system/gpu_memory_mib"] = torch.cuda.max_memory_allocated(device) / MIB
        metrics["system/gpu_percent"] = _gpu_percent(device)
    return metrics


def _gpu_percent(device: torch.device) -> float:
    """Load of a GPU; NaN without NVIDIA's library or driver, or for a part of a GPU (MIG)."""
    try:
        return float(torch.cuda.utilization(device))
    except Exception:  # noqa: BLE001 - whatever NVIDIA's library raises, training must continue
        return math.nan
