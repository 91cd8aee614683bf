"""Cache of a sweep's figures and of their inputs, which take from milliseconds to seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from sweeps.errors import TrackingUnreachable
from sweeps.service.auth.rate_limits import turn
from sweeps.tracking.record import SweepRecord

CACHED = 300
"""Number of cached values."""
MAX_LOAD = 0.2
"""Maximum share of time spent on recomputing one value while its sweep runs."""
AT_ONCE = 2
"""Maximum number of slow figures that are made at the same time."""
WAIT_S = 20.0
"""Maximum seconds for which a request waits for its turn."""

T = TypeVar("T")


@dataclass
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    record: SweepRecord | None = None
    """Record that the value was made from; None: it was not made yet."""
    value: Any = None
    made: float = 0.0
    """Time of the last attempt to make the value, by the monotonic clock."""
    took: float = 0.0


class FigureCache:
    """Thread-safe cache of values that are made from a sweep's record."""

    def __init__(self) -> None:
        self._entry = lru_cache(CACHED)(lambda _sweep, _key: _Entry())
        self._turns = threading.BoundedSemaphore(AT_ONCE)

    def get(self, record: SweepRecord, key: Hashable, make: Callable[[], T]) -> T:
        """Value with this key for a record; an older one if the record has just changed, or while the store cannot be
        reached.

        Raises:
            TrackingUnreachable: The store cannot be reached, and there is no older value.
        """
        entry = self._entry(record.sweep, key)
        with entry.lock:
            started = time.monotonic()
            is_young = started - entry.made < entry.took / MAX_LOAD
            if entry.record is None or not (is_young or entry.record is record or entry.record == record):
                try:
                    entry.value = make()
                    entry.record = record
                except TrackingUnreachable:
                    if entry.record is None:
                        raise
                entry.made = time.monotonic()
                entry.took = entry.made - started
            value: T = entry.value
            return value

    def turn(self) -> AbstractContextManager[None]:
        """Wait until fewer than ``AT_ONCE`` figures are being made."""
        return turn(self._turns, WAIT_S, "too many figures are being made; try again later")
