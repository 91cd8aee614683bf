"""Reporter of a trial's main worker: writes events to the report log and posts them to the broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from sweeps.runtime.attempt import StopRequest
from sweeps.runtime.broker_sides import WorkersSide
from sweeps.runtime.checkpoint_layout import newest_step
from sweeps.runtime.events import Log, Note, Report, Saved, Started
from sweeps.runtime.report_log import ReportLog, read_report_log
from sweeps.runtime.stored_trial import StoredTrial
from sweeps.runtime.trial_assignment import Assignment
from sweeps.runtime.trial_cost import CostMeter
from sweeps.storage.location import is_remote, plain
from sweeps.tracking.held_checkpoints import hold
from sweeps.tracking.values import now_ms
from sweeps_train.checkpoints.checkpoint_metrics import read_metrics
from sweeps_train.reports.progress import Progress
from sweeps_train.reports.reporter import Stop

SEND_EVERY_S = 0.2
"""Minimum seconds between two calls that post logs. A call takes ten times as long as a line in the report log, so
quick steps share one call."""


class BrokerReporter:
    """Reporter of rank 0: posts to the broker without waiting, unless the scheduler decides on each report."""

    def __init__(self, assignment: Assignment, stored: StoredTrial | None = None):
        """
        Args:
            assignment: The trial.
            stored: The trial in an object store, if it is in one. Checkpoints are announced once they are in the store.
        """
        self._assignment, self._stored = assignment, stored
        self._lock = threading.Lock()
        self._broker: WorkersSide = assignment.broker
        self._start = newest_step(Path(assignment.checkpoint_folder)) or 0
        self._undelivered = undelivered(assignment, () if stored is None else stored.steps)
        self.cost = CostMeter(assignment)
        self._report_log = ReportLog(assignment.checkpoint_folder)
        self._stop_request = StopRequest.NONE
        self._stop = self._wait_for_stop()
        self._posted: list[Any] = []
        self._logs: list[Log] = []
        self._logs_sent_at = 0.0
        self._previous = self._send(self._broker.post(Started(*assignment.key, now_ms(), assignment.origin)))
        """The last call with logs or a report. An asynchronous actor may reorder calls, so the next one is made when
        the broker has processed this one."""
        self._announce_stored()

    @property
    def waits_for_decision(self) -> bool:
        return self._assignment.waits_for_decision

    def log(self, progress: Progress, metrics: dict[str, float]) -> None:
        self._post_undelivered(progress.step)
        log = Log(*self._assignment.key, progress.step, metrics, now_ms())
        self._write(log)
        self._logs.append(log)
        if time.monotonic() - self._logs_sent_at >= SEND_EVERY_S and self._previous_is_taken():
            self._send_logs()

    def report(self, progress: Progress, metrics: dict[str, float], checkpoint: str | None, done: bool) -> None:
        self._post_undelivered(progress.step)
        announced = None if self._stored is not None else checkpoint
        report = Report(
            *self._assignment.key,
            progress.step,
            metrics | self.cost.at_report(progress.step),
            now_ms(),
            progress=progress.resources(),
            checkpoint=announced,
            held=self._hold(announced),
            saved=checkpoint is not None,
            done=done,
        )
        self._write(report)
        if self._stored is not None:
            self._send_logs()  # before the upload, which takes time and announces a later step
            if checkpoint is not None:
                self._upload(self._stored, progress.step, metrics, checkpoint)
            if done or self._assignment.waits_for_decision:  # the workers may be gone soon after
                self._stored.wait()
        ray.get(self._previous)
        events, self._logs = [*self._logs, report], []
        if self._assignment.waits_for_decision:
            self._broker.post_and_wait(events)
        else:
            self._previous = self._send(self._broker.post_all(events))

    def _hold(self, checkpoint: str | None) -> str | None:
        if checkpoint is None or not self._assignment.holds_checkpoints:
            return None
        return hold(checkpoint, self._assignment.checkpoint_folder)

    def checkpoint(self, progress: Progress, metrics: dict[str, float], checkpoint: str) -> None:
        if self._stored is not None:
            self._upload(self._stored, progress.step, metrics, checkpoint)
        else:
            self._post_saved(progress.step, metrics, checkpoint, self._hold(checkpoint))

    def _upload(self, stored: StoredTrial, step: int, metrics: dict[str, float], checkpoint: str) -> None:
        """Upload a checkpoint, and announce it once it is in the store."""
        stored.save(Path(checkpoint), lambda uri: self._post_saved(step, metrics, uri, None))

    def _announce_stored(self) -> None:
        """Announce checkpoints of earlier attempts that died between uploading and announcing them."""
        if self._stored is None or not self._stored.steps:
            return
        from sweeps_train.checkpoints.checkpoint import FILES, complete_checkpoints  # imports torch

        known = self._assignment.last_delivered
        for path in complete_checkpoints(self._stored.folder):
            step = int(path.name.removeprefix("step-"))
            if (known is None or step <= known) and (metrics := read_metrics(path)):
                files = path / FILES if (path / FILES).is_dir() else path
                self._post_saved(step, metrics, self._stored.uri(files), None)

    def _post_saved(self, step: int, metrics: dict[str, float], checkpoint: str, held: str | None) -> None:
        reported = metrics | self.cost.reported(step) if metrics else metrics
        saved = Saved(*self._assignment.key, step, reported, now_ms(), checkpoint=checkpoint, held=held)
        self._write(saved)
        self._send(self._broker.post(saved))

    def _write(self, event: Log) -> None:
        with self._lock:  # checkpoints are announced by another thread
            self._report_log.write(event)

    def note(self, text: str) -> None:
        self._send(self._broker.post(Note(*self._assignment.key, text)))

    def should_stop(self, *, can_save: bool = True) -> Stop:
        ready, _ = ray.wait([self._stop], timeout=0)
        if ready:
            self._stop_request = ray.get(self._stop)
            if self._stop_request is StopRequest.AT_CHECKPOINT:
                self._stop = self._wait_for_stop()
        match self._stop_request:
            case StopRequest.NONE:
                return Stop.NO
            case StopRequest.AT_CHECKPOINT:
                return Stop.SAVE if can_save else Stop.NO
            case StopRequest.SAVE:
                return Stop.SAVE
            case StopRequest.DISCARD:
                return Stop.DISCARD

    def _wait_for_stop(self) -> Any:
        return self._broker.wait_for_stop(*self._assignment.key, self._stop_request)

    def flush(self) -> None:
        """Wait until the broker has all events; the worker group must not end before that."""
        try:
            if self._stored is not None:
                self._stored.wait()
            self._send_logs()
            ray.get(self._posted)
        finally:
            self._report_log.close()

    def _post_undelivered(self, step: int) -> None:
        """Post the undelivered events of earlier attempts from before the step at which this attempt starts; called at
        its first log or report, which may be the late evaluation of an earlier checkpoint."""
        first = step if step >= self._start else self._start + 1
        events, self._undelivered = [event for event in self._undelivered if event.step < first], []
        if events:
            ray.get(self._previous)
            ray.get(self._broker.post_all(events))

    def _send_logs(self) -> None:
        if self._logs:
            ray.get(self._previous)
            self._previous, self._logs = self._send(self._broker.post_all(self._logs)), []
        self._logs_sent_at = time.monotonic()

    def _previous_is_taken(self) -> bool:
        return bool(ray.wait([self._previous], timeout=0)[0])

    def _send(self, posted: Any) -> Any:
        with self._lock:
            _, self._posted = ray.wait([*self._posted, posted], num_returns=len(self._posted) + 1, timeout=0)
        return posted


def undelivered(assignment: Assignment, stored: Collection[str] = ()) -> list[Log]:
    """Return events of earlier attempts that the driver may not have received; for each step, the first measurement.

    Args:
        stored: Names of the checkpoints that are in the trial's object store, if it is in one.
    """
    known, has_all_reports = assignment.last_delivered, assignment.waits_for_decision
    if known is None and has_all_reports and assignment.attempt == 1:
        return []
    events = [*read_report_log(assignment.checkpoint_folder)]
    if known is None and has_all_reports:  # and with them what came before
        newest = max((number for number, event in enumerate(events, 1) if isinstance(event, Report)), default=0)
        events = [event for event in events[newest:] if type(event) is Log]
    found: dict[tuple[type, int], Log] = {}
    for event in events:
        if event.step >= (known or 0):
            found.setdefault((type(event), event.step), replace(event, attempt=assignment.attempt))
    existing = (_with_existing_checkpoint(event, stored) for event in found.values())
    return sorted(existing, key=lambda event: event.step)


def _with_existing_checkpoint(event: Log, stored: Collection[str]) -> Log:
    """Return the event, without its checkpoint if the training has deleted it and no copy is held for MLflow."""
    if not isinstance(event, Report | Saved) or event.checkpoint is None:
        return event
    if is_remote(event.checkpoint):
        exists = not {*Path(plain(event.checkpoint)).parts}.isdisjoint(stored)
    else:
        exists = any(Path(folder).is_dir() for folder in (event.checkpoint, event.held) if folder is not None)
    if exists:
        return event
    if isinstance(event, Saved):
        return Log(event.trial, event.attempt, event.step, event.metrics, event.timestamp_ms)
    return replace(event, checkpoint=None, held=None)
