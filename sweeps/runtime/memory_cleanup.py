"""Cleanup of a worker process between two trials: frees the memory that the last trial has left, and measures the
rest."""

from __future__ import annotations

import gc
import math
import sys
from typing import Any

import psutil

from sweeps_train.measures.measurement import Measurement

GROWTH_MIB = 128.0
"""Memory growth since the last full collection that triggers another one."""

MANY_OBJECTS = 10_000
"""Number of surviving objects above which they count as libraries or shared data, and are frozen."""


class MemoryCleanup:
    """Frees the reference cycles of models and optimizers; memory that is still in use afterwards counts as a leak.

    The libraries of a worker are half a million objects, which Python needs a third of a second to search: more than a
    short trial takes. Objects that survive the first trial are therefore frozen (``gc.freeze``) and skipped until
    memory has grown, because frozen objects may have become garbage by then.
    """

    def __init__(self) -> None:
        self._usual_mib = math.nan
        self._measurement = Measurement("memory that trials leave in a worker")

    def run(self) -> float:
        """Free the memory that the trial has left; return MiB in use afterwards, NaN if unknown."""
        gc.collect()
        mib = self._used_mib()
        if math.isnan(self._usual_mib):  # only libraries are frozen; searching them copies pages that forks share
            self._usual_mib = mib
        elif mib > self._usual_mib + GROWTH_MIB:
            gc.unfreeze()
            gc.collect()
            mib = self._usual_mib = self._used_mib()
        if len(gc.get_objects()) > MANY_OBJECTS:
            gc.freeze()
        for accelerator in _used_accelerators():
            accelerator.empty_cache()  # NCCL and other processes on this GPU need what torch only keeps in reserve
            accelerator.reset_peak_memory_stats()  # the next trial's own code may report its peak
        return mib

    def _used_mib(self) -> float:
        return self._measurement.value(_memory_mib, math.nan)


def _memory_mib() -> float:
    """Return the MiB of resident memory of this process plus torch's allocations for tensors on its GPU."""
    allocated = psutil.Process().memory_info().rss
    allocated += sum(accelerator.memory_allocated() for accelerator in _used_accelerators())
    return float(allocated) / 2**20


def _used_accelerators() -> list[Any]:
    """Return torch's modules of the accelerators that this process has used."""
    torch: Any = sys.modules.get("torch")
    return [] if torch is None else [each for each in (torch.cuda, torch.xpu) if each.is_initialized()]
