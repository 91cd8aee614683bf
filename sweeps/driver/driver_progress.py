"""Watchdog of the driver's main thread, which stops the heartbeat when that thread hangs. A thread with a heartbeat of
its own would continue while the main thread waits forever."""

from __future__ import annotations

import faulthandler
import math
import os
import time

STARTS_WITHIN_S = 1800.0
"""Maximum seconds for one step of the start, such as starting Ray, making datasets, or reaching the tracking server."""
SEARCHES_WITHIN_S = 600.0
"""Maximum seconds for a step of Tune's loop, which takes milliseconds unless a sampler computes for long."""


class _Driver:
    next_sign_by = math.inf
    is_reported = False


def expect_progress(within_s: float) -> None:
    """Record a sign of life of the main thread, and the time until the next one is due."""
    _Driver.next_sign_by, _Driver.is_reported = time.monotonic() + within_s, False


def is_stalled() -> bool:
    """Whether the main thread's next sign of life is overdue; the first time, print the stacks of all threads."""
    if time.monotonic() < _Driver.next_sign_by:
        return False
    if not _Driver.is_reported:
        _Driver.is_reported = True
        # Without logging and sys.stderr, whose locks may be what the threads wait for.
        os.write(2, b"sweeps: the driver makes no progress and sends no further heartbeat; its threads:\n")
        faulthandler.dump_traceback(2)
    return True
