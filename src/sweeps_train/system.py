"""What a worker process takes of its machine."""

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
    how busy its GPU is (percent; NaN without NVIDIA's library, the extra ``gpu``). The same names on all workers."""
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
    """NaN where nobody can say: without the library or its driver, or for a part of a GPU (MIG)."""
    try:
        return float(torch.cuda.utilization(device))
    except Exception:  # noqa: BLE001 - NVIDIA's library has errors of its own, and none is worth a training
        return math.nan
