"""Thread-safe read cache over MLflow, shared by all clients: a hundred polling clients cause one read per second."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Generic, TypeVar

from sqlalchemy import Engine

from sweeps.errors import SweepsError, TrackingUnreachable, UnknownName
from sweeps.report.expected_cost import PastSweep, past_of, past_sweeps
from sweeps.service.auth.permissions import LOCAL, Principal, visible
from sweeps.service.queue import jobs
from sweeps.service.queue.job_requests import Extend, Resume
from sweeps.service.queue.jobs import Job, JobDocument
from sweeps.texts.suggestions import did_you_mean
from sweeps.tracking.client import connect
from sweeps.tracking.reader import list_sweeps, load_sweep
from sweeps.tracking.record import SweepRecord, SweepSummary

FRESH_S = 1.0
"""Age in seconds from which a snapshot is refreshed in the background while readers get the old one."""
STALE_S = 5.0
"""Age in seconds from which readers wait for a new snapshot."""
ASK_AFTER_S = 2.2
"""Seconds of waiting after which a reader takes a snapshot younger than ``OLD_S``. Without one, it checks whether the
store answers, and continues waiting if it does. Longer than a read needs to notice an unresponsive store."""
OLD_S = 60.0
"""Age of a snapshot in seconds from which it is used only if the store does not answer, since a sweep may have
ended."""
MAX_LOAD = 0.2
"""Maximum share of time spent reading one entry: the record of a sweep of thousands of trials takes seconds."""
MAX_SWEEPS = 100
"""Maximum number of cached sweeps."""
MAX_PAST = 500
"""Maximum number of sweeps whose measured work is cached."""

Content = TypeVar("Content")


@dataclass(frozen=True)
class Snapshot(Generic[Content]):
    """Content of a cache entry, and the time of its reading."""

    content: Content
    taken: float
    """Unix time of the reading."""
    trouble: str = ""
    """Error of the store, if it does not answer and the content is an older one."""


class CacheEntry(Generic[Content]):
    """The last snapshot of one value, refreshed when it is read, by one thread at a time."""

    def __init__(self, read: Callable[[], Content], check_store: Callable[[], object]) -> None:
        """Cache the result of ``read``, which may take long. ``check_store`` raises ``TrackingUnreachable`` within
        seconds if the store does not answer."""
        self._read, self._check_store = read, check_store
        self._lock = threading.Lock()
        self._last: Snapshot[Content] | None = None
        self._taken = self._took = 0.0
        """Time of the last read, and duration of the last successful read, by the monotonic clock."""
        self._reading: Future[Snapshot[Content]] | None = None

    def get(self) -> Snapshot[Content]:
        """Return a snapshot that is at most a few seconds old, or an older one while the store does not answer."""
        with self._lock:
            last, age = self._last, time.monotonic() - self._taken
            fresh = max(FRESH_S, self._took / MAX_LOAD)
            if last is not None and age < fresh:
                return last
            reading = self._reading
            if reading is None:
                reading = self._reading = Future()
                # A daemon thread, which ends with the process, whatever it waits for.
                run = partial(copy_context().run, self._read_now, reading)
                try:
                    threading.Thread(target=run, name="records", daemon=True).start()
                except RuntimeError:  # no room for another thread
                    self._reading = None
                    raise
        if last is not None and age < fresh + STALE_S:
            return last
        while not wait([reading], ASK_AFTER_S).done:
            if last is not None and time.time() - last.taken < OLD_S:
                return replace(last, trouble=f"MLflow takes longer than {ASK_AFTER_S:g} s to answer")
            try:
                self._check_store()
            except TrackingUnreachable as error:
                if last is None:
                    raise
                return replace(last, trouble=str(error))
        return reading.result()

    def _read_now(self, reading: Future[Snapshot[Content]]) -> None:
        started = time.monotonic()
        try:
            try:
                snapshot = Snapshot(self._read(), time.time())
                self._took = time.monotonic() - started
            except TrackingUnreachable as error:
                if self._last is None:
                    raise
                snapshot = replace(self._last, trouble=str(error))
        except Exception as error:  # noqa: BLE001 - raised by those who wait
            self._reading = None
            reading.set_exception(error)
        else:
            self._last, self._taken, self._reading = snapshot, time.monotonic(), None
            reading.set_result(snapshot)


@dataclass(frozen=True)
class SweepLine:
    """A sweep in the list, with the job that made it."""

    summary: SweepSummary
    job: Job | None
    """Job that made the sweep; None if it was not made through the service."""


class RecordCache:
    """Cached sweeps, filtered by what a principal may see. Thread-safe."""

    def __init__(self, engine: Engine, uri: str) -> None:
        self._engine, self._uri = engine, uri
        self._check_store = partial(connect, uri)
        self._list = CacheEntry(self._read_list, self._check_store)
        self._lock = threading.Lock()
        self._sweeps: OrderedDict[str, CacheEntry[SweepRecord]] = OrderedDict()
        self._past = lru_cache(MAX_PAST)(self._read_past)

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
                entry = self._sweeps[name] = CacheEntry(partial(load_sweep, self._uri, name), self._check_store)
            self._sweeps.move_to_end(name)
            if len(self._sweeps) > MAX_SWEEPS:
                self._sweeps.popitem(last=False)
        try:
            return entry.get()
        except UnknownName:
            with self._lock:
                self._sweeps.pop(name, None)
            raise self._unknown(principal, name) from None

    def past_sweeps(self, principal: Principal, conf: str) -> list[PastSweep]:
        """Return the measured work of the newest ended sweeps of a config that a principal may see; empty while the
        store does not answer."""

        def read(summary: SweepSummary) -> PastSweep | None:
            try:
                self.check_exists(principal, summary.sweep)
                return self._past(summary.sweep, summary.wall_s)
            except UnknownName:  # it was removed after the list was read
                return None

        try:
            return past_sweeps((line.summary for line in self.sweeps(principal).content), conf, read)
        except SweepsError:
            return []

    def exists(self, principal: Principal, name: str) -> bool:
        """Whether a principal may see a sweep of this name, even if it is not recorded."""
        if principal.role == "admin":
            return True
        with self._engine.connect() as connection:
            return visible(principal, jobs.creator(connection, name))

    def check_exists(self, principal: Principal, name: str) -> None:
        """Raise ``UnknownName`` if a principal may not see a sweep."""
        if not self.exists(principal, name):
            raise self._unknown(principal, name)

    def forget(self, name: str) -> None:
        """Drop a changed sweep, so that it is read again."""
        with self._lock:
            self._sweeps.pop(name, None)

    def _unknown(self, principal: Principal, name: str) -> UnknownName:
        with self._engine.connect() as connection:
            seen = (job for job in jobs.of_sweep(connection, name) if visible(principal, job))
            # A job that continues a sweep makes no record.
            job = next((job for job in seen if not isinstance(job.parsed_request, Resume | Extend)), None)
        if job is not None:
            error = f": {JobDocument.of(job).error}" if job.error else ""
            return UnknownName(
                f"{name} has no record{'' if job.has_ended else ' yet'}: its job {job.id} is {job.state}{error}"
            )
        known = [line.summary.sweep for line in self.sweeps(principal).content]
        return UnknownName(f"there is no sweep {name!r}{did_you_mean(name, known)}")

    def _read_past(self, sweep: str, _wall_s: float) -> PastSweep | None:  # `_wall_s`: a cache key
        return past_of(self.sweep(LOCAL, sweep))

    def _read_list(self) -> list[SweepLine]:
        summaries = list_sweeps(self._uri)
        with self._engine.connect() as connection:
            makers = jobs.creators(connection, [summary.sweep for summary in summaries])
        return [SweepLine(summary, makers.get(summary.sweep)) for summary in summaries]
