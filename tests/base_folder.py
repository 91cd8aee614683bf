"""The folder in which pytest makes those of the tests: in memory where there is room, since a database that commits
waits for its disk."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

PLACE = "PYTEST_DEBUG_TEMPROOT"
"""pytest's environment variable of the folder above its own."""
SHARED_MEMORY = Path("/dev/shm")
LEAST_FREE = 4 * 2**30
"""Bytes; a run of all tests needs a tenth."""


def use_memory() -> None:
    """Let pytest make its folder in memory, unless somebody has chosen another place or there is too little."""
    chosen = {PLACE, "TMPDIR"} & os.environ.keys()
    if not chosen and has_room(SHARED_MEMORY) and psutil.virtual_memory().available >= 2 * LEAST_FREE:
        os.environ[PLACE] = str(SHARED_MEMORY)


def has_room(folder: Path, least_free: int = LEAST_FREE) -> bool:
    """Whether a folder is in memory, can hold so many bytes, and may hold programs, which tests write and run."""
    in_memory = {each.mountpoint for each in psutil.disk_partitions(all=True) if each.fstype == "tmpfs"}
    if str(folder) not in in_memory or not os.access(folder, os.W_OK):
        return False
    system = os.statvfs(folder)
    return system.f_bavail * system.f_frsize >= least_free and not system.f_flag & os.ST_NOEXEC
