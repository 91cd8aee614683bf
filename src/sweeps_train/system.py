"""What a worker process takes of its machine."""

from __future__ import annotations

import contextlib
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
    how busy its GPU is (percent) where NVIDIA's library is installed (the extra ``gpu``)."""
    process = _process()
    metrics = {
        "system/cpu_percent": process.cpu_percent(),
        "system/memory_mib": process.memory_info().rss / MIB,
    }
    if device.type == "cuda":
        metrics["system/gpu_memory_mib"] = torch.cuda.max_memory_allocated(device) / MIB
        with contextlib.suppress(ImportError):
            metrics["system/gpu_percent"] = float(torch.cuda.utilization(device))
    return metrics
