"""Memory of this machine, or of the container in which this process runs."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files with a container's limit of memory, of both versions of Linux's control groups."""


def machine_memory() -> int:
    """Bytes in all."""
    total = psutil.virtual_memory().total
    for file in _CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # there is no such limit: the file says "max", or is missing
            total = min(total, int(Path(file).read_text(encoding="ascii")))
    return total
