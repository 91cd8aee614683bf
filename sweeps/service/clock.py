"""The clock of the service; tests replace it by one that can be set."""

from __future__ import annotations

import threading
import time


class Clock:
    """The machine's clock."""

    def now(self) -> float:
        """Return the time in seconds since 1970 (UTC), as in the service's database."""
        return time.time()

    def steady(self) -> float:
        """Return monotonic seconds, including the time in which the machine was suspended."""
        # Outside of Linux the monotonic clock either counts suspended time itself or cannot.
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def wait(self, wake: threading.Event, seconds: float) -> bool:
        """Sleep until ``seconds`` have passed or ``wake`` is set; return whether it is set."""
        return wake.wait(seconds)
