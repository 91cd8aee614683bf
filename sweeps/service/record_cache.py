"""Thread-safe read cache over MLflow, shared by all clients: a hundred polling clients cause one read a second."""

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
from sweeps.service.shared_failure import SharedFailure
from sweeps.suggestions import did_you_mean
from sweeps.tracking.reader import list_sweeps, load_sweep
from sweeps.tracking.record import SweepRecord, SweepSummary

FRESH_S = 1.0
"""Age in seconds from which a snapshot is refreshed in the background while readers get the old one."""
STALE_S = 5.0
"""Age in seconds from which readers wait for a new snapshot."""
MAX_LOAD = 0.2
"""Maximum share of time spent reading one entry: the record of a sweep of thousands of trials takes seconds."""
MAX_SWEEPS = 100
"""Maximum number of cached sweeps."""

Content = TypeVar("Content")


@dataclass(frozen=True)
class Snapshot(Generic[Content]):
    """Content of an entry, and when it was read."""

    content: Content
    taken: float
    """Unix time."""
    trouble: str = ""
    """Reason why the content is not newer, if the store does not answer."""


class CacheEntry(Generic[Content]):
    """The last snapshot of one value, refreshed when it is read."""

    def __init__(self, read: Callable[[], Content], executor: ThreadPoolExecutor) -> None:
        self._read, self._executor = read, executor
        self._reading, self._failure = threading.Lock(), SharedFailure()
        self._last: Snapshot[Content] | None = None
        self._taken = self._took = 0.0
        """Time and duration of the last read, by the monotonic clock."""

    def get(self) -> Snapshot[Content]:
        """Return a snapshot that is at most a few seconds old, or an older one while the store does not answer."""
        last, age = self._last, time.monotonic() - self._taken
        fresh = max(FRESH_S, self._took / MAX_LOAD)
        if last is not None and age < fresh:
            return last
        if last is not None and age < fresh + STALE_S:
            if self._reading.acquire(blocking=False):
                self._executor.submit(self._refresh)
            return last
        asked = time.monotonic()
        with self._reading:
            if self._last is not None and time.monotonic() - self._taken < fresh:
                return self._last  # another thread has just read it
            return self._failure.call(self._read_now, asked)

    def _refresh(self) -> None:
        """Read anew, and release the lock that the submitting thread has acquired."""
        try:
            self._read_now()
        except Exception:  # noqa: BLE001, S110 - the next reader waits and gets the error
            pass
        finally:
            self._reading.release()

    def _read_now(self) -> Snapshot[Content]:
        started = time.monotonic()
        try:
            snapshot = Snapshot(self._read(), time.time())
        except TrackingUnreachable as error:
            if self._last is None:
                raise
            snapshot = Snapshot(self._last.content, self._last.taken, str(error))
        self._last, self._taken, self._took = snapshot, time.monotonic(), time.monotonic() - started
        return snapshot


@dataclass(frozen=True)
class SweepLine:
    """A sweep in the list, with the job that made it."""

    summary: SweepSummary
    job: Job | None
    """Job that made the sweep; None if it was not made through the service."""


class RecordCache:
    """Cached sweeps, filtered by what a principal may see. Thread-safe."""

    def __init__(self, engine: Engine, uri: str) -> None:
        """
        Args:
            engine: The service's database, which knows the owners of sweeps.
            uri: Tracking URI.
        """
        self._engine, self._uri = engine, uri
        self._executor = ThreadPoolExecutor(2, "records")
        self._list = CacheEntry(self._read_list, self._executor)
        self._lock = threading.Lock()
        self._sweeps: OrderedDict[str, CacheEntry[SweepRecord]] = OrderedDict()

    def sweeps(self, principal: Principal) -> Snapshot[list[SweepLine]]:
        """Return all sweeps visible to a principal, newest first.

        Raises:
            TrackingUnreachable: The store does not answer, and nothing is cached.
        """
        every = self._list.get()
        if principal.role == "admin":
            return every
        own = [line for line in every.content if visible(principal, line.job)]
        return Snapshot(own, every.taken, every.trouble)

    def sweep(self, principal: Principal, name: str) -> SweepRecord:
        """Return the record of one sweep.

        Raises:
            UnknownName: There is no such sweep, or it is not visible to the principal.
            TrackingUnreachable: The store does not answer, and the sweep is not cached.
        """
        return self.snapshot(principal, name).content

    def snapshot(self, principal: Principal, name: str) -> Snapshot[SweepRecord]:
        """Return the record of one sweep, and when it was read."""
        self.check_exists(principal, name)
        with self._lock:
            entry = self._sweeps.get(name)
            if entry is None:
                entry = self._sweeps[name] = CacheEntry(partial(load_sweep, self._uri, name), self._executor)
            self._sweeps.move_to_end(name)
            if len(self._sweeps) > MAX_SWEEPS:
                self._sweeps.popitem(last=False)
        try:
            return entry.get()
        except UnknownName:
            with self._lock:
                self._sweeps.pop(name, None)
            raise self._unknown(principal, name) from None

    def exists(self, principal: Principal, name: str) -> bool:
        """Whether a principal may see a sweep of this name, which need not be recorded."""
        if principal.role == "admin":
            return True
        with self._engine.connect() as connection:
            return visible(principal, jobs.creator(connection, name))

    def check_exists(self, principal: Principal, name: str) -> None:
        """Raise an error if a sweep is not visible.

        Raises:
            UnknownName: The principal may not see the sweep.
        """
        if not self.exists(principal, name):
            raise self._unknown(principal, name)

    def forget(self, name: str) -> None:
        """Drop a sweep that has been changed, so that it is read anew."""
        with self._lock:
            self._sweeps.pop(name, None)

    def close(self) -> None:
        """Stop refreshing."""
        self._executor.shutdown(cancel_futures=True)

    def _unknown(self, principal: Principal, name: str) -> UnknownName:
        known = [line.summary.sweep for line in self.sweeps(principal).content]
        return UnknownName(f"there is no sweep {name!r}{did_you_mean(name, known)}")

    def _read_list(self) -> list[SweepLine]:
        summaries = list_sweeps(self._uri)
        with self._engine.connect() as connection:
            makers = jobs.creators(connection, [summary.sweep for summary in summaries])
        return [SweepLine(summary, makers.get(summary.sweep)) for summary in summaries]
