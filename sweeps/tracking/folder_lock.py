"""Lock on a folder of this machine that leaves no file in the folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

POLL_S = 0.05


@contextlib.contextmanager
def folder_locked(folder: Path, at_most_s: float) -> Iterator[None]:
    """Hold the lock of a folder, or of its nearest existing parent. Continue without the lock if the file system does
    not support locks, or another process holds it for too long."""
    existing = next((each for each in (folder, *folder.parents) if each.is_dir()), Path("/"))
    try:
        descriptor = os.open(existing, os.O_RDONLY)
    except OSError:  # it cannot be read
        yield
        return
    try:
        deadline = time.monotonic() + at_most_s
        while not _locked(descriptor) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
