"""The clock of a group's steps, which stands still while a lane does something else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class StepClock:
    """Seconds, without those in which some lane evaluates, saves or reports: all lanes wait for it."""

    def __init__(self) -> None:
        self._aside_s = 0.0

    def now(self) -> float:
        """Seconds since some moment."""
        return time.perf_counter() - self._aside_s

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Context of something that is no step."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._aside_s += time.perf_counter() - began
