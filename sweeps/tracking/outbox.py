"""Thread that delivers the journal to MLflow, in order and in batches.

For each run in a batch, first the metric values are written, then the newest tags and status. A run is created before
anything is written to it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sweeps.errors import StorageFailed
from sweeps.tracking.client import CALLS_AT_ONCE
from sweeps.tracking.journal import PARENT, Entry, Journal, NewRun, Points, Status
from sweeps.tracking.log_batch import MetricValue, log_batch
from sweeps.tracking.mlflow_characters import storable
from sweeps.tracking.record import MlflowIds
from sweeps.tracking.retry import REFUSALS, REFUSALS_OF_ALL_CALLS, GaveUp, Refused, Retrier
from sweeps.tracking.run_batch import PARENT_RUN, RunBatch, by_run, first_tags
from sweeps.tracking.sqlite_writer import SqliteWriter
from sweeps.tracking.store import tag_filter
from sweeps.tracking.uris import sqlite_path

if TYPE_CHECKING:
    from mlflow import MlflowClient

T = TypeVar("T")
logger = logging.getLogger(__name__)

HEARTBEAT_S = 10.0
WRITE_EVERY_S = 1.0
"""Seconds between two batches; each batch takes processor time from the training, regardless of its size."""
WRITE_AT_POINTS = 5000
"""Number of waiting metric values at which a batch is delivered before ``WRITE_EVERY_S`` have passed."""
BATCH_BYTES = 4 << 20
"""Maximum bytes of the journal in memory, some ten thousand metric values."""
POINTS_PER_CALL = 1000
ALWAYS_SEARCHED = 4
"""Maximum size of the smaller part of a refused call for which both parts are searched for acceptable values. Otherwise
the second part is searched only if some of the first was written: where all are refused, a full search would take a
call for each."""
PAIRS_PER_CALL = 100
"""MLflow's maximum number of parameters, and of tags, in one ``log_batch``."""


class Outbox:
    """Delivers a journal to MLflow. Its thread runs from ``start`` to ``close``."""

    def __init__(
        self,
        client: MlflowClient,
        retrier: Retrier,
        journal: Journal,
        ids: MlflowIds,
        beat: Callable[[], None],
    ) -> None:
        """Prepare the outbox; ``ids`` are those in this store (the journal may have been started with another one). The
        thread calls ``beat`` every ``HEARTBEAT_S`` seconds."""
        self._client, self._retrier, self._journal = client, retrier, journal
        self._beat, self._next_beat = beat, time.monotonic() + HEARTBEAT_S
        self._earlier_end = journal.end
        """End of the entries of earlier drivers, which may have created a run without saving its id."""
        self._ids = ids
        self._run_ids: dict[str, str] = {PARENT: ids.run_id}
        self._refused: set[str] = set()
        """Runs for which MLflow has refused a call, so that each gets only one warning."""
        self._condition = threading.Condition()
        self._waiting = 0
        """Number of metric values that MLflow has not received, counted from `start` on."""
        self._flushing = False
        self._closing = False
        threads = CALLS_AT_ONCE if client.tracking_uri.startswith("http") else 1
        path = sqlite_path(client.tracking_uri)
        self._sqlite = SqliteWriter(path, ids) if path is not None else None
        self._pool = ThreadPoolExecutor(threads, "sweeps-mlflow-call") if threads > 1 else None
        self._thread = threading.Thread(target=self._run, name="sweeps-mlflow", daemon=True)

    # --- callers -------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._waiting = _num_points(self._journal.entries(self._journal.position))
        self._thread.start()

    def adopt(self, run_ids: Mapping[str, str]) -> None:
        """Set MLflow's ids of existing runs, by key."""
        with self._condition:
            self._run_ids.update(run_ids)
            self._condition.notify_all()

    def put(self, *entries: Entry) -> None:
        """Write entries to the journal; they are delivered soon."""
        self._journal.append(*entries)
        if points := _num_points(entries):
            with self._condition:
                self._waiting += points
                if self._waiting >= WRITE_AT_POINTS:
                    self._condition.notify_all()

    def wait_for_run(self, key: str, timeout_s: float) -> str | None:
        """Wait until a run is created, and return MLflow's id of it; None after the timeout.

        Raises:
            Refused: MLflow has refused the run.
        """
        with self._condition:
            self._condition.wait_for(lambda: key in self._run_ids or key in self._refused, timeout=timeout_s)
            if key not in self._run_ids and key in self._refused:
                raise Refused("MLflow has refused its run")
            return self._run_ids.get(key)

    def flush(self, while_waiting: Callable[[], None]) -> bool:
        """Wait until the current journal is delivered or the retrier has given up; return whether it is delivered.
        Meanwhile ``while_waiting`` is called again and again."""
        end = self._journal.end
        with self._condition:
            self._flushing = True
            self._condition.notify_all()
            while self._journal.position < end and self._thread.is_alive() and self._retrier.time_left() > 0:
                while_waiting()
                self._condition.wait(0.2)
            self._flushing = False
        return self._journal.position >= end

    def close(self) -> int:
        """End the thread; return how many metric values MLflow has not received."""
        with self._condition:
            self._closing = True
            self._condition.notify_all()
        while self._thread.is_alive() and self._retrier.time_left() > 0:
            self._thread.join(0.2)
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        return self._waiting

    # --- the thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        # The driver reports a full disk; entries that are not delivered stay in the journal.
        with suppress(GaveUp, StorageFailed):
            while not self._closing:
                with self._condition:
                    self._condition.wait_for(
                        lambda: self._closing or self._flushing or self._waiting >= WRITE_AT_POINTS,
                        timeout=WRITE_EVERY_S,
                    )
                if not self.deliver() and self._flushing:
                    time.sleep(0.01)
                if time.monotonic() >= self._next_beat:
                    self._next_beat = time.monotonic() + HEARTBEAT_S
                    with suppress(Refused):
                        self._retrier.call(self._beat)

    def deliver(self) -> bool:
        """Deliver the next batch; return whether there was one."""
        start = self._journal.position
        entries, end = self._journal.read(start, BATCH_BYTES)
        if end == start:
            return False
        if not self._journal.sync(end):
            return False  # a driver on another machine would not know that MLflow has it
        batches, points = by_run(entries, self._run_ids)
        if self._sqlite is not None and batches:
            batches = self._write_to_sqlite(self._sqlite, batches, creates=start >= self._earlier_end)
        new = {key: batch.new for key, batch in batches.items() if batch.new is not None and key not in self._run_ids}
        self._each(partial(self._create, may_exist=start < self._earlier_end), new.items())
        batches = {key: batch for key, batch in batches.items() if key in self._run_ids}  # others were refused
        # The last metric values of a run are written with its tags, so that an ended trial has all of them. Runs
        # with nothing but metric values wait for no other call.
        chunks = {key: _chunks(batch.points, POINTS_PER_CALL) for key, batch in batches.items()}
        last = {key: several.pop() for key, several in chunks.items() if batches[key].has_more}
        whole = [(key, chunk) for key, several in chunks.items() for chunk in several]
        self._each(lambda key, chunk: self._log(key, points=chunk), whole)
        self._each(self._finish, [(key, (batches[key], points)) for key, points in last.items()])
        self._journal.advance(end)
        with self._condition:
            self._waiting -= points
            self._condition.notify_all()
        return True

    def _write_to_sqlite(
        self, writer: SqliteWriter, batches: dict[str, RunBatch], *, creates: bool
    ) -> dict[str, RunBatch]:
        """Write batches in one transaction; return those that are for MLflow's client."""

        def write() -> dict[str, str]:
            return writer.write(
                batches, self._run_ids, creates=creates, is_wanted=lambda: self._retrier.time_left() > 0
            )

        try:
            written = self._retrier.call(write)
        except Refused:  # MLflow's client has written meanwhile
            self._sqlite = None
            return batches
        self.adopt(written)
        return {key: batch for key, batch in batches.items() if key not in written}

    def _each(self, call: Callable[[str, T], object], items: Iterable[tuple[str, T]]) -> None:
        keys_and_values = list(items)
        if self._pool is None or len(keys_and_values) < 2:
            for key, value in keys_and_values:
                call(key, value)
        else:
            for _ in self._pool.map(lambda item: call(*item), keys_and_values):
                pass

    def _create(self, key: str, new: NewRun, *, may_exist: bool) -> None:
        client, experiment = self._client, self._ids.experiment_id
        where = tag_filter(new.identity | {PARENT_RUN: self._ids.run_id})
        tags = first_tags(new, self._ids.run_id)
        try:
            run = self._retrier.create_once(
                find=lambda: next(iter(client.search_runs([experiment], where, max_results=1)), None),
                create=lambda: client.create_run(experiment, new.started_ms, tags, storable(new.name)),
                may_exist=may_exist,
            )
        except Refused as error:
            self._warn_refused(key, error)
            return
        self.adopt({key: str(run.info.run_id)})

    def _finish(self, key: str, last: tuple[RunBatch, list[MetricValue]]) -> None:
        """Write the last metric values of a batch and everything else in it."""
        batch, points = last
        params, tags = batch.params_and_tags()
        if max(len(params), len(tags)) <= PAIRS_PER_CALL and len(points) + len(params) + len(tags) <= POINTS_PER_CALL:
            self._log(key, params=params, points=points, tags=tags)
        else:
            for params_chunk in _chunks(list(params.items()), PAIRS_PER_CALL):
                self._log(key, params=dict(params_chunk))
            self._log(key, points=points)
            for tags_chunk in _chunks(list(tags.items()), PAIRS_PER_CALL):
                self._log(key, tags=dict(tags_chunk))
        run_id = self._run_ids[key]
        for name in batch.deleted_tags():
            with suppress(Refused):  # there is no such tag
                self._retrier.call(partial(self._client.delete_tag, run_id, name))
        if batch.status is not None:
            try:
                self._retrier.call(partial(self._set_status, run_id, batch.status))
            except Refused as error:
                self._warn_refused(key, error)

    def _log(self, key: str, *, is_searched: bool = True, **kinds: Any) -> bool:
        """Write points, params and tags in one call; if MLflow refuses it, in smaller calls, so that as little as
        possible is lost.

        Args:
            key: The run.
            is_searched: Whether a refused call is repeated in parts.
            kinds: Content by kind.

        Returns:
            Whether a part of the content was written.
        """
        content = {kind: items for kind, items in kinds.items() if items}
        if not content:
            return False
        try:
            self._retrier.call(lambda: log_batch(self._client, self._run_ids[key], **content))
        except Refused as error:
            parts = _parts(content) if is_searched and not self._refuses_run(key, error) else []
            if not parts:
                self._warn_refused(key, error)
        else:
            return True
        is_written = False
        for index, part in enumerate(parts):
            is_promising = is_written or index == 0 or len(content) > 1 or min(map(_size, parts)) <= ALWAYS_SEARCHED
            is_written |= self._log(key, is_searched=is_promising, **part)
        return is_written

    def _refuses_run(self, key: str, error: Refused) -> bool:
        """Whether smaller calls for a run would be refused, too, or each would take minutes again."""
        code = getattr(error.__cause__, "error_code", None)
        return code in REFUSALS_OF_ALL_CALLS or (code not in REFUSALS and key in self._refused)

    def _set_status(self, run_id: str, status: Status) -> None:
        if status.ended_ms is None:
            self._client.update_run(run_id, status=status.status)
        else:
            self._client.set_terminated(run_id, status.status, status.ended_ms)

    def _warn_refused(self, key: str, error: Refused) -> None:
        with self._condition:
            if key in self._refused:
                return
            self._refused.add(key)
            self._condition.notify_all()
        what = f"trial {key}" if key else "the sweep"
        logger.warning("MLflow refuses entries for the run of %s: %s", what, error)


def _num_points(entries: Iterable[Entry]) -> int:
    return sum(len(entry.metrics) for entry in entries if isinstance(entry, Points))


def _parts(kinds: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Split the content of a call by kind, metric values of several names by name, or others into halves; empty if it
    cannot be split."""
    if len(kinds) > 1:
        return [{kind: items} for kind, items in kinds.items()]
    if len(names := sorted({point.name for point in kinds.get("points", ())})) > 1:
        halves = (set(half) for half in _chunks(names, math.ceil(len(names) / 2)))
        return [{"points": [point for point in kinds["points"] if point.name in half]} for half in halves]
    return [
        {kind: dict(half) if isinstance(items, dict) else half}
        for kind, items in kinds.items()
        if len(items) > 1
        for half in _chunks(list(items.items() if isinstance(items, dict) else items), math.ceil(len(items) / 2))
    ]


def _size(kinds: Mapping[str, Any]) -> int:
    return sum(map(len, kinds.values()))


def _chunks(items: list[T], size: int) -> list[list[T]]:
    """Split items into lists of limited size; returns at least one list, which may be empty."""
    return [items[start : start + size] for start in range(0, len(items), size)] or [[]]
