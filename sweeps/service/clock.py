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

    def wait(self, wake: threading.Event, seconds: float) -> bool:
        """Sleep until ``seconds`` have passed or ``wake`` is set; returns whether it is set."""
        ...


class WallClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    def wait(self, wake: threading.Event, seconds: float) -> bool:
        return wake.wait(seconds)
