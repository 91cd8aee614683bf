"""The clock of a group's steps, which stops while a lane evaluates, saves or reports."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class StepClock:
    """Counts seconds, except those in which a lane evaluates, saves or reports, since all lanes wait for it."""

    def __init__(self) -> None:
        self._aside_s = 0.0

    def now(self) -> float:
        """Return the seconds on this clock, from an arbitrary zero."""
        return time.perf_counter() - self._aside_s

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Context manager in which the clock is stopped."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._aside_s += time.perf_counter() - began
