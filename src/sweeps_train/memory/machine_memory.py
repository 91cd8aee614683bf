"""Memory of this machine, or of the container or job in which this process runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

_OWN = Path("/proc/self/cgroup")
"""File with the control groups of this process."""


class _Version(NamedTuple):
    """Folder and names of the files of one version of Linux's control groups."""

    root: str
    limit: str
    used: str
    prefix: str
    """Beginning of the names, among the statistics, that include those of the groups below."""


_VERSIONS = {
    "": _Version("/sys/fs/cgroup", "memory.max", "memory.current", ""),
    "memory": _Version("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
}
"""Versions by the controller that a line of ``_OWN`` names."""


def machine_memory() -> int:
    """Return the total memory in bytes."""
    return min([psutil.virtual_memory().total, *(limit for limit, _, _ in _limits())])


def available_memory() -> int:
    """Return the bytes that can be used without taking memory from other processes."""
    available = [psutil.virtual_memory().available]
    for limit, folder, version in _limits():
        with contextlib.suppress(OSError, ValueError, KeyError):
            statistics = (folder / "memory.stat").read_text(encoding="ascii")
            parts = dict(line.split(" ", 1) for line in statistics.splitlines())
            used = int((folder / version.used).read_text(encoding="ascii"))
            cached = (int(parts[f"{version.prefix}{name}"]) for name in ("active_file", "inactive_file"))
            available.append(limit - used + sum(cached))  # the kernel takes the cache of files back
    return max(0, min(available))


def _limits() -> Iterator[tuple[int, Path, _Version]]:
    """Yield the limits in bytes of this process's control group and of those around it, up to the root: Slurm and
    systemd limit a group far below the root, a container sees its own group as the root."""
    with contextlib.suppress(OSError):  # not Linux
        for line in _OWN.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            _, controllers, path = line.split(":", 2)
            version = _VERSIONS.get("memory" if "memory" in controllers.split(",") else controllers)
            if version is None:
                continue
            for inside in (own := Path(path.lstrip("/")), *own.parents):
                folder = Path(version.root, inside)
                with contextlib.suppress(OSError, ValueError):  # the file says "max", or is missing
                    yield int((folder / version.limit).read_text(encoding="ascii")), folder, version
