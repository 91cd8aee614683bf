"""Memory of this machine, or of the container in which this process runs."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files with a container's memory limit, for both versions of Linux's control groups."""
_CGROUP_USES = (
    ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat", "inactive_file"),
    ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "/sys/fs/cgroup/memory/memory.stat", "total_inactive_file"),
)
"""Files with the memory in use, and the name of its immediately reclaimable part in another file; for both versions."""


def machine_memory() -> int:
    """Return the total memory in bytes."""
    return min([psutil.virtual_memory().total, *_limits().values()])


def available_memory() -> int:
    """Return the bytes that can be used without taking memory from other processes."""
    available = [psutil.virtual_memory().available]
    for version, limit in _limits().items():
        used, statistics, reclaimable = _CGROUP_USES[version]
        with contextlib.suppress(OSError, ValueError, KeyError):
            parts = dict(line.split(" ", 1) for line in Path(statistics).read_text(encoding="ascii").splitlines())
            available.append(limit - int(Path(used).read_text(encoding="ascii")) + int(parts[reclaimable]))
    return max(0, min(available))


def _limits() -> dict[int, int]:
    """Return a container's limits in bytes, by their index in ``_CGROUP_LIMITS``."""
    limits = {}
    for version, file in enumerate(_CGROUP_LIMITS):
        with contextlib.suppress(OSError, ValueError):  # there is no such limit: the file says "max", or is missing
            limits[version] = int(Path(file).read_text(encoding="ascii"))
    return limits
