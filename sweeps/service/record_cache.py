"""Sweeps as the store has them, read once for all who look: a hundred clients that poll cause one read a second."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from sqlalchemy import Engine

from sweeps.errors import TrackingUnreachable, UnknownName
from sweeps.service.auth.principal import Principal, visible
from sweeps.service.queue import jobs
from sweeps.service.queue.jobs import Job
from sweeps.suggestions import did_you_mean
from sweeps.tracking.reader import list_sweeps, load_sweep
from sweeps.tracking.record import SweepRecord, SweepSummary

FRESH_S = 1.0
"""A snapshot that is older is read anew, while those who look get the old one."""
STALE_S = 5.0
"""One that is older is given to nobody: who looks waits for the next."""
SHARE_OF_TIME = 0.2
"""Of its time in which the store is asked for one thing at most: a sweep of thousands of trials takes it seconds."""
KEPT = 100
"""Sweeps of which there is a snapshot."""

Content = TypeVar("Content")


@dataclass(frozen=True)
class Snapshot(Generic[Content]):
    """What was read, and when."""

    content: Content
    taken: float
    """Unix time."""
    trouble: str = ""
    """Why it is not newer: the store is away."""


class CacheEntry(Generic[Content]):
    """The last snapshot of one thing."""

    def __init__(self, read: Callable[[], Content], aside: ThreadPoolExecutor) -> None:
        self._read, self._aside = read, aside
        self._reading = threading.Lock()
        self._last: Snapshot[Content] | None = None
        self._taken = self._took = 0.0
        """Of the monotonic clock."""

    def get(self) -> Snapshot[Content]:
        last, age = self._last, time.monotonic() - self._taken
        fresh = max(FRESH_S, self._took / SHARE_OF_TIME)
        if last is not None and age < fresh:
            return last
        if last is not None and age < fresh + STALE_S:
            if self._reading.acquire(blocking=False):
                self._aside.submit(self._refresh)
            return last
        with self._reading:
            if self._last is not None and time.monotonic() - self._taken < fresh:
                return self._last  # somebody else has just read it
            return self._read_now()

    def _refresh(self) -> None:
        """With the lock held, which is released here: the thread that took it does not wait."""
        try:
            self._read_now()
        except Exception:  # noqa: BLE001, S110 - who looks next will wait, and hear of it
            pass
        finally:
            self._reading.release()

    def _read_now(self) -> Snapshot[Content]:
        began = time.monotonic()
        try:
            snapshot = Snapshot(self._read(), time.time())
        except TrackingUnreachable as error:
            if self._last is None:
                raise
            snapshot = Snapshot(self._last.content, self._last.taken, str(error))
        self._last, self._taken, self._took = snapshot, time.monotonic(), time.monotonic() - began
        return snapshot


@dataclass(frozen=True)
class SweepLine:
    """A sweep in the list."""

    summary: SweepSummary
    job: Job | None
    """Which made it; None if it was not made through the service."""


class RecordCache:
    """The service's eyes; may be asked by many threads at once."""

    def __init__(self, engine: Engine, uri: str) -> None:
        """
        Args:
            engine: The service's database, which says whose a sweep is.
            uri: Tracking URI of the store.
        """
        self._engine, self._uri = engine, uri
        self._aside = ThreadPoolExecutor(2, "seen")
        self._list = CacheEntry(self._read_list, self._aside)
        self._lock = threading.Lock()
        self._sweeps: OrderedDict[str, CacheEntry[SweepRecord]] = OrderedDict()

    def sweeps(self, principal: Principal) -> Snapshot[list[SweepLine]]:
        """All sweeps that there are for a principal, the newest first.

        Raises:
            TrackingUnreachable: The store is away, and nothing was seen before.
        """
        every = self._list.get()
        if principal.role == "admin":
            return every
        own = [line for line in every.content if visible(principal, line.job)]
        return Snapshot(own, every.taken, every.trouble)

    def sweep(self, principal: Principal, name: str) -> SweepRecord:
        """One of them.

        Raises:
            UnknownName: There is no such sweep for the principal.
            TrackingUnreachable: The store is away, and the sweep was not seen before.
        """
        return self.snapshot(principal, name).content

    def snapshot(self, principal: Principal, name: str) -> Snapshot[SweepRecord]:
        """The same, and when it was read."""
        self.check_exists(principal, name)
        with self._lock:
            kept = self._sweeps.get(name)
            if kept is None:
                kept = self._sweeps[name] = CacheEntry(partial(load_sweep, self._uri, name), self._aside)
            self._sweeps.move_to_end(name)
            if len(self._sweeps) > KEPT:
                self._sweeps.popitem(last=False)
        try:
            return kept.get()
        except UnknownName:
            with self._lock:
                self._sweeps.pop(name, None)
            raise self._unknown(principal, name) from None

    def exists(self, principal: Principal, name: str) -> bool:
        """Whether a sweep could be the principal's to see; it may not be in the store."""
        if principal.role == "admin":
            return True
        with self._engine.connect() as connection:
            return visible(principal, jobs.creator(connection, name))

    def check_exists(self, principal: Principal, name: str) -> None:
        """
        Raises:
            UnknownName: The sweep is not the principal's to see.
        """
        if not self.exists(principal, name):
            raise self._unknown(principal, name)

    def forget(self, name: str) -> None:
        """Somebody has changed a sweep: who looks next sees that."""
        with self._lock:
            self._sweeps.pop(name, None)

    def close(self) -> None:
        """No more is read."""
        self._aside.shutdown(cancel_futures=True)

    def _unknown(self, principal: Principal, name: str) -> UnknownName:
        known = [line.summary.sweep for line in self.sweeps(principal).content]
        return UnknownName(f"there is no sweep {name!r}{did_you_mean(name, known)}")

    def _read_list(self) -> list[SweepLine]:
        summaries = list_sweeps(self._uri)
        with self._engine.connect() as connection:
            makers = jobs.creators(connection, [summary.sweep for summary in summaries])
        return [SweepLine(summary, makers.get(summary.sweep)) for summary in summaries]
