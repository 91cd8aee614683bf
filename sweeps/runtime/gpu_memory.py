"""Memory of GPUs, read from their driver without torch, which takes seconds to import."""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

DRIVERS = (
    ("libcuda.so.1", "cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceTotalMem_v2"),
    ("libamdhip64.so", "hipInit", "hipGetDeviceCount", "hipDeviceGet", "hipDeviceTotalMem"),
)
"""Libraries of NVIDIA's and AMD's drivers, and their functions. Both respect the variables that hide GPUs from a
process, and count the memory of a slice (MIG) as a GPU's."""
WITHIN_S = 8.0
"""Maximum seconds to wait for the memory of GPUs."""


def visible_gpu_memory() -> list[int]:
    """Return the memory in bytes of each GPU that this process sees; empty without a GPU or a driver."""
    for library, *names in DRIVERS:
        with contextlib.suppress(OSError, AttributeError):
            driver = ctypes.CDLL(library)
            return _memory_of_each(*(getattr(driver, name) for name in names))
    return []


def _memory_of_each(initialize: Any, count: Any, get: Any, total: Any) -> list[int]:
    number = ctypes.c_int(0)
    if initialize(0) != 0 or count(ctypes.byref(number)) != 0:
        return []
    found = []
    for index in range(number.value):
        device, size = ctypes.c_int(0), ctypes.c_size_t(0)
        if get(ctypes.byref(device), index) == 0 and total(ctypes.byref(size), device) == 0:
            found.append(size.value)
    return found


def local_gpu_memory() -> int | None:
    """Return the memory in bytes of this machine's smallest GPU; None if it has none.

    A separate process reads it, because a process that has initialised a driver cannot be forked.
    """
    command = [sys.executable, "-c", "from sweeps.runtime.gpu_memory import *; print(*visible_gpu_memory())"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=True)
        return min((int(each) for each in done.stdout.split()), default=None)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def cluster_gpu_memory(nodes: Sequence[dict[str, float]]) -> int | None:
    """Return the memory in bytes of the smallest GPU of a connected cluster, reading one GPU per node; None if none
    answers in time, such as when all are in use."""
    import ray

    own = [name for node in nodes if node.get("GPU") for name in node if name.startswith("node:") and "__" not in name]
    asked = [
        ray.remote(visible_gpu_memory).options(num_cpus=0, num_gpus=0.001, resources={name: 0.001}).remote()
        for name in own
    ]
    done, waiting = ray.wait(asked, num_returns=len(asked), timeout=WITHIN_S) if asked else ([], [])
    for each in waiting:
        ray.cancel(each)
    try:
        return min((size for sizes in ray.get(done) for size in sizes), default=None)
    except ray.exceptions.RayError:  # the sweep starts without it; it is only for a message
        return None
