"""A driver's session with a sweep, whose event loop applies the broker's events to the sweep's state, tracking and
view."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sweeps.driver.early_end import SIGNAL_FIRST_S
from sweeps.driver.forecaster import Forecaster
from sweeps.driver.sweep_state import SweepState
from sweeps.driver.trial_lifecycle import Change, TrialLifecycle
from sweeps.driver.waiting_for_nodes import WaitingForNodes
from sweeps.driver.worker_events import WorkerEvents
from sweeps.errors import ClusterLost, StorageFailed, is_storage_failure
from sweeps.runtime.attachment import BROKER_DIED
from sweeps.tracking.client import first_cause

if TYPE_CHECKING:
    from sweeps.plan.plan import Plan
    from sweeps.runtime.driver_side import DriverSide
    from sweeps.tracking.recorder import Recorder

DRAIN_TIMEOUT_S = 0.5
ANSWERS_WITHIN_S = 30.0
"""Maximum seconds to wait for the broker's last answer; events that are missing then are in the trials' report logs."""
ENDS_WITHIN_S = 300.0
"""Maximum seconds to wait for the ends of trials; the event loop takes milliseconds, unless it has failed."""

logger = logging.getLogger(__name__)


class Session:
    """One driver's work on a sweep: its state, and the thread that keeps it up to date."""

    def __init__(self, plan: Plan, state: SweepState, recorder: Recorder, broker: DriverSide):
        from sweeps.driver.report_decisions import Decisions
        from sweeps.driver.retries import Retries

        self.plan = plan
        """The sweep's plan, as extended so far."""
        self.state, self.recorder, self.broker = state, recorder, broker
        self.retries = Retries(state)
        self.decisions = Decisions(state.objectives, self.retries, broker)
        self.worker_events = WorkerEvents(state, recorder, self.decisions)
        self.lifecycle = TrialLifecycle(state, recorder, self.worker_events, self.decisions, broker)
        self.looks: list[Callable[[], None]] = [Forecaster(state, recorder).look]
        """Functions that the event loop calls repeatedly; each checks itself whether it has something to do."""
        if state.awaits:
            self.looks.append(WaitingForNodes(state).look)
        self._publish_at = 0.0
        self._told_of_death = False
        """Whether the broker's death was announced, and its successor has brought no event since."""
        self._closed = threading.Event()
        self._answers_by = math.inf
        """Monotonic time until which the broker's last answer is waited for."""
        self._changes: list[Change] = []
        """Changes that the event loop has taken from the queue, including an end whose recording has failed and is
        retried."""
        self._error: Exception | None = None
        """The error that ended the event loop."""
        self._thread = threading.Thread(target=self._run, name="event-loop", daemon=True)

    def start(self) -> None:
        """Start the event loop."""
        self._thread.start()

    def close(self) -> None:
        """Process all events that were posted, and stop the event loop.

        Raises:
            Exception: The error that has already ended the event loop.
        """
        self._answers_by = time.monotonic() + ANSWERS_WITHIN_S
        self._closed.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        with self._ended_by_failed_storage():
            # Ends that were reported after the cluster was gone, or while the disk accepted no writes.
            self.lifecycle.process([*self._changes, *self.lifecycle.queued()])
            self._publish()

    def wait_for_ends(self) -> bool:
        """Wait until the session's state has the ends of all trials, after Tune has ended them; return whether it
        has."""
        until = time.monotonic() + ENDS_WITHIN_S
        while any(each.state == "running" for each in self.state.all_trials):
            if not self._thread.is_alive() or self.state.shutdown.status is not None or time.monotonic() >= until:
                return False
            time.sleep(0.02)
        return True

    def _run(self) -> None:
        try:
            self._take_events()
        except Exception as error:  # noqa: BLE001 - raised by `close`: a sweep that records nothing must not continue
            self._error = error
            self.state.shutdown.begin("interrupted")
            self.broker.stop_waiting_for_answers()

    def _take_events(self) -> None:
        while True:
            closing = self._closed.is_set()
            if not self._waits():
                # A trial's workers post everything before Tune hears of its end: draining after taking the queue of
                # ends cannot miss an event.
                self._changes += self.lifecycle.queued()
            disk_is_fine = self.state.shutdown.storage_failure is None
            timeout = 0.01 if closing or (self._changes and disk_is_fine) else DRAIN_TIMEOUT_S
            with self._ended_by_failed_storage():  # the events are in the trials' report logs, too
                self._take_posted(timeout)
            if self._waits():
                continue
            with self._ended_by_failed_storage():
                self.lifecycle.process(self._changes)
            with self._ended_by_failed_storage():
                self._show(now=closing)
            if closing and self.lifecycle.is_idle:
                return

    def _waits(self) -> bool:
        """Whether to wait for a pending answer of the broker: its events must be recorded before the ends that Tune
        reports."""
        is_late = time.monotonic() >= self._answers_by
        return not (self.broker.is_answering or is_late) and self.state.shutdown.has_cluster

    def _take_posted(self, timeout_s: float) -> None:
        import ray

        try:
            events = self.broker.drain(timeout_s)
            if events is None and self.state.shutdown.has_cluster:
                if not self._told_of_death:  # short of memory, Ray may lose the new process again and again
                    again = "trials begin again from their newest checkpoints, which does not count as a failure"
                    self.state.announce(f"{BROKER_DIED}: {again}")
                self._told_of_death = True
                self.broker.attach(self.worker_events.broker_died())
            else:
                self._told_of_death &= not events
                self.worker_events.take(events or ())
        except ray.exceptions.RayError as error:  # what was posted before has been taken
            if not self._closed.is_set():
                self._closed.wait(SIGNAL_FIRST_S)
                first_line = str(error).partition("\n")[0]
                self.state.shutdown.cluster_is_lost(ClusterLost(self.state.sweep, first_line))
            self._closed.set()

    def _show(self, *, now: bool) -> None:
        """Publish the sweep's state if it is due or ``now``; an error in the view must not end the recording."""
        try:
            if now or time.monotonic() >= self._publish_at:
                with self.state.lock:
                    self._publish()
            for look in self.looks:
                look()
        except StorageFailed:
            raise
        except Exception:
            logger.exception("the progress of the sweep could not be shown")

    @contextmanager
    def _ended_by_failed_storage(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not is_storage_failure(error):
                raise
            if not isinstance(error, StorageFailed):  # an error of Optuna's storage about a report
                error = StorageFailed(self.state.folder, first_cause(error))
            self.state.shutdown.storage_has_failed(error)
            self.broker.stop_waiting_for_answers()

    def _publish(self) -> None:
        """Count the used resources, and update the sweep's record and the view. The time that this takes grows with the
        number of trials, so it may take at most a tenth of this thread's time."""
        state, began = self.state, time.monotonic()
        state.count_usage()
        front = [(each.trial, each.values, each.parameters) for each in state.front() if each.values is not None]
        self.recorder.update(state.counts(), front, state.time())
        state.view.changed(state)
        now = time.monotonic()
        self._publish_at = now + 9 * (now - began)
