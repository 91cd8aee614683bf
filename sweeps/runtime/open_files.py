"""Flush of files that a user's code has left open in a worker: Ray kills its processes, so Python does not flush
them."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io


def write_open_files_at_exit() -> None:
    """Flush open files when this process ends, after exit handlers that are registered later."""
    atexit.register(write_open_files)


def write_open_files() -> None:
    gc.unfreeze()  # `MemoryCleanup` has hidden some
    for each in gc.get_objects():
        if issubclass(type(each), io.TextIOWrapper | io.BufferedWriter | io.BufferedRandom):
            with contextlib.suppress(OSError, ValueError):  # it is closed or open for reading, or its disk is gone
                each.flush()
