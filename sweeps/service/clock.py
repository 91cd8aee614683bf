"""What time it is, for everything in the service that acts by the time; tests have one that travels."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since 1970 (UTC), as every time in the service's database is."""

    def now(self) -> float:
        """The time."""
        ...

    def steady(self) -> float:
        """Seconds since any one moment, which nobody sets; also those in which the machine was asleep."""
        ...

    def wait(self, wake: threading.Event, seconds: float) -> bool:
        """Sleep until ``seconds`` have passed or ``wake`` is set; returns whether it is set."""
        ...


class WallClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    def steady(self) -> float:
        # Elsewhere than on Linux the monotonic clock counts sleep by itself, or does not at all.
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def wait(self, wake: threading.Event, seconds: float) -> bool:
        return wake.wait(seconds)
