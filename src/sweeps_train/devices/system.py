"""System metrics of a worker process: its use of processors and memory."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable

import psutil
import torch

from sweeps_train.devices.device_operations import counts_memory, peak_memory, peak_reserved_memory, reset_peak_memory
from sweeps_train.measures.measurement import Measurement
from sweeps_train.memory.device_memory import usable_memory

MIB = 2**20
LASTS_S = 0.05
"""Seconds for which a measured CPU use is reused: trainings of a group log at the same step, microseconds apart."""


class _ThisProcess:
    """Use of processors and memory by this process. A forked process, which may inherit this module's state, starts
    over."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._process = psutil.Process()
        self._now, self._used = time.perf_counter(), time.process_time()
        self._percent = math.nan

    def memory(self) -> float:
        """Return the resident memory in MiB."""
        return self._process.memory_info().rss / MIB

    def processors(self) -> float:
        """Return the CPU use in percent of one core since the last measurement, or since this module was loaded.
        ``psutil`` would read a file for it, which takes a noticeable part of a small model's steps between two logs."""
        now, used = time.perf_counter(), time.process_time()
        if math.isnan(self._percent) or now - self._now >= LASTS_S:
            self._percent = 100 * (used - self._used) / (now - self._now)
            self._now, self._used = now, used
        return self._percent


_this_process = _ThisProcess()
_measurement = functools.cache(Measurement)
"""Returns this process's measurement of a name, which reports its failure only once."""

MEMORY = ("system/memory_mib", "system/gpu_memory_mib", "system/gpu_memory_reserved_mib")
"""Metrics that are compared with the memory that one worker may use."""


def memory_limit(device: torch.device) -> tuple[str, float]:
    """Return the metric of the memory that this worker may use, and its value in MiB: memory of the GPU if it has its
    own, otherwise of the machine."""
    name = "system/gpu_memory_limit_mib" if counts_memory(device) else "system/memory_limit_mib"
    return name, _read(name, lambda: usable_memory(device) / MIB)


def begin_measurement(device: torch.device) -> None:
    """Reset the peak of GPU memory that earlier trainings in this process left."""
    with _measurement("the peak of GPU memory").attempt():
        reset_peak_memory(device)


def system_metrics(device: torch.device) -> dict[str, float]:
    """Measure this process's use of the machine, with the same names on all workers.

    Returns:
        CPU use since the last measurement (percent of one core); resident memory (MiB); peaks of GPU memory since
        ``begin_measurement``, of tensors and of all that torch has reserved (MiB); and the load of its GPU (percent;
        NaN without the extra ``gpu``). NaN for what cannot be measured.
    """
    readings: dict[str, Callable[[], float]] = {
        "system/cpu_percent": _this_process.processors,
        "system/memory_mib": _this_process.memory,
    }
    if counts_memory(device):
        readings |= {
            "system/gpu_memory_mib": lambda: peak_memory(device) / MIB,
            "system/gpu_memory_reserved_mib": lambda: peak_reserved_memory(device) / MIB,
            "system/gpu_percent": lambda: _gpu_percent(device),
        }
    return {name: _read(name, reading) for name, reading in readings.items()}


def device_in_use() -> torch.device:
    """Return the GPU that code of a user has begun to use in this process, otherwise the CPU."""
    return torch.device("cuda" if torch.cuda.is_initialized() else "cpu")  # type: ignore[no-untyped-call]


def _read(name: str, reading: Callable[[], float]) -> float:
    """Return the value of a metric; NaN if it cannot be read."""
    return _measurement(name).value(reading, math.nan)


def _gpu_percent(device: torch.device) -> float:
    """Return the load of a GPU in percent; NaN without NVIDIA's library or driver, or for a MIG slice."""
    try:
        return float(torch.cuda.utilization(device))
    except Exception:  # noqa: BLE001 - whatever NVIDIA's library raises, training must continue
        return math.nan
