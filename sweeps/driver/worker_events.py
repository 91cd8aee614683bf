"""Application of the workers' events to the sweep's state and tracking."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from sweeps.driver.sweep_state import SweepState
from sweeps.driver.time_ledger import SPENT_METRICS
from sweeps.driver.trial_status import TrialStatus
from sweeps.files.checksums import mend
from sweeps.folders.trial_files import LOGS, flight_record_name, logs_folder, traceback_name, traceback_text
from sweeps.runtime.attachment import TrialSoFar
from sweeps.runtime.checkpoint_layout import checkpoint_folders
from sweeps.runtime.events import Ended, Event, Log, Note, Report, Saved, Started, Waiting
from sweeps.runtime.report_log import REPORT_LOG_FILE, read_report_log
from sweeps.texts.wording import counted
from sweeps.tracking.mlflow_texts import describe
from sweeps.tracking.trial_history import FailedAttempt, Span, TimedNote, Weights

if TYPE_CHECKING:
    from pathlib import Path

    from sweeps.config.objectives import Values
    from sweeps.driver.report_decisions import Decisions
    from sweeps.search.schedulers.scheduler import Exploit
    from sweeps.space.space import Point
    from sweeps.tracking.artifact_uploader import CheckpointKind
    from sweeps.tracking.recorder import Recorder


class WorkerEvents:
    """Applies the events of all trials' workers in order, and passes recorded reports on for a decision."""

    def __init__(self, state: SweepState, recorder: Recorder, decisions: Decisions):
        self._state, self._recorder, self._decisions = state, recorder, decisions
        self._early: dict[str, list[Event]] = {}
        """Events of trials that Tune has not announced yet."""
        self._exploits: dict[tuple[str, int], Exploit] = {}
        """All exploits, by trial and number; each is recorded when the trial's workers begin to train from the other
        trial's state."""
        self._initial: dict[str, Point] = {}
        """Points with which trials of earlier sessions began that have exploits."""

    def take(self, events: Iterable[Event]) -> None:
        """Apply a batch of events.

        Raises:
            StorageFailed: The events cannot be recorded.
        """
        with self._state.lock:
            try:
                for event in events:
                    if (status := self._state.trials.get(event.trial)) is None or status.state == "waiting":
                        self._early.setdefault(event.trial, []).append(event)
                    else:
                        self._take(status, event)
            finally:
                self._decisions.send()

    def _take(self, status: TrialStatus, event: Event) -> None:
        match event:
            case Ended():
                self._take_end(status, event)
                if self._decisions.ended(status, event):
                    self._begin_again(status)
            case Note():
                status.notes.append(TimedNote(at=time.time(), text=event.text))
                self._recorder.trials.record_notes(event.trial, status.notes)
                self._state.announce(f"trial {event.trial}: {event.text}")
            case Waiting():
                status.holds = {}  # until they start
                self._state.ledger.of(event.trial).wait(time.time())
                if self._state.awaits is None:  # else `WaitingForNodes` says which nodes it waits for
                    text = "waits: others use the resources that its workers need"
                    self._state.announce(f"trial {event.trial} {text}")
            case Started():
                self._take_start(status, event)
                self._decisions.started(event)
            case Saved():
                self._record_checkpoint(status, event, event.checkpoint, event.held)
            case Report():
                self._take_metrics(status, event)
                status.eval_every = status.eval_every or self._state.eval_every(status)
                if self._decisions.report(status, event):
                    self._begin_again(status)
            case _:
                self._take_metrics(status, event)

    def take_early(self, trial: str) -> None:
        """Apply the events that arrived before Tune announced the trial's start."""
        self.take(self._early.pop(trial, ()))

    def broker_died(self) -> dict[str, TrialSoFar]:
        """Mark events of running trials as possibly lost; return what is known of these trials.

        A trial's next attempt posts lost events again; if a trial has no next attempt, its lost events are in the
        report log.
        """
        found = {}
        with self._state.lock:
            for status in self._state.all_trials:
                if status.state == "running":
                    status.has_lost_events = True
                    exploits = self._recorder.trials.exploits(status.trial)
                    taken_over = (status.trial, exploits + 1) in self._exploits  # the other trial's step may be earlier
                    failures = sum(not each.moved for each in status.failures)
                    found[status.trial] = TrialSoFar(status.workers_attempt, failures, 0 if taken_over else status.step)
        return found

    def take_report_log(self, trial: str, up_to: int | None = None, after: int = -1) -> None:
        """Apply the events in a trial's report log that an earlier driver or the broker did not pass on before it died.
        Recorded events are not recorded twice.

        Args:
            trial: Id of the trial.
            up_to: Last step to apply; default: all.
            after: Last step whose events were applied before, possibly except its checkpoint. After an unrecorded
                exploit, no event was.
        """
        for num_exploits, folder in self._unrecorded_logs(trial):
            self._mend_report_log(folder)
            with self._state.lock:
                if self._record_exploit(trial, num_exploits):
                    after = -1
                for event in read_report_log(str(folder), up_to):
                    if isinstance(event, Saved) and event.step >= after:
                        self._record_checkpoint(self._state.trials[trial], event, event.checkpoint, event.held)
                    elif event.step > after:
                        self._take_metrics(self._state.trials[trial], event)

    def record_again(self) -> None:
        """Record reports of ended trials again, from their report logs, after the journal was damaged."""
        for status in self._state.all_trials:
            if status.has_ended:
                for _, folder in self._unrecorded_logs(status.trial):
                    for event in read_report_log(str(folder), status.step):
                        self._record_log(event, competes=isinstance(event, Report) and event.competes)

    def _unrecorded_logs(self, trial: str) -> Iterator[tuple[int, Path]]:
        """Yield the number of exploits and the folder of each report log of a trial. Logs that were completely recorded
        before the trial continued from another one's state are skipped."""
        folders = checkpoint_folders(self._state.folder / "trials", trial)
        return itertools.islice(enumerate(folders), self._recorder.trials.exploits(trial), None)

    def _mend_report_log(self, folder: Path) -> None:
        """Correct flipped bits in a report log, and report further damage."""
        file = folder / REPORT_LOG_FILE
        with contextlib.suppress(OSError):  # there is none, or it can only be read
            if damage := mend(file):
                self._state.announce(f"{file}: {damage}")

    def reports(self, trial: str) -> list[Report]:
        """The evaluations in a trial's report logs that count for the search."""
        folders = checkpoint_folders(self._state.folder / "trials", trial)
        events = [event for folder in folders for event in read_report_log(str(folder))]
        return [event for event in events if isinstance(event, Report) and event.competes]

    def exploited(self, exploit: Exploit, initial: Point | None = None) -> None:
        """Record that a trial will continue from another trial's state; ``initial`` is the trial's first point, if it
        did so in an earlier session."""
        with self._state.lock:
            if initial is not None:
                self._initial[exploit.trial] = initial
            self._exploits[exploit.trial, exploit.origin.num_exploits] = exploit

    def _take_start(self, status: TrialStatus, event: Started) -> None:
        status.workers_attempt, status.has_begun = event.attempt, False
        if self._state.fit.is_elastic and event.workers:
            self._take_workers(status, len(event.workers))
        status.training_since, status.holds = event.timestamp_ms / 1000, status.needs
        held = (event.assigned_ms or event.timestamp_ms) / 1000
        if status.has_workers:  # nobody was left to report their end
            status.spans[-1] = replace(status.spans[-1], ended=max(status.spans[-1].trained, held))
        status.spans.append(Span(held=held, trained=event.timestamp_ms / 1000, workers=event.workers))
        self._recorder.trials.record_spans(status.trial, status.spans)
        status.lineage = event.origin.num_exploits if event.origin is not None else 0
        self._state.ledger.of(event.trial).start(status.spans[-1], status.lineage)
        self._record_exploit(event.trial, status.lineage)
        status.begins_at = status.step if status.saved_step is None else status.saved_step

    def _take_workers(self, status: TrialStatus, number: int) -> None:
        """Record the number of workers with which an attempt of an elastic trial begins."""
        before = len(status.spans[-1].workers) if status.spans else number
        status.resize(number)
        if number != before:
            self._state.announce(f"trial {status.trial} continues with {counted(number, 'worker')} instead of {before}")

    def _take_move(self, status: TrialStatus, event: Ended, reason: str) -> None:
        """Apply the end of workers whose trial continues on other workers."""
        self._record_break(status, event.timestamp_ms / 1000, reason, moved=True)
        why = "" if event.error in (None, reason) else f" ({event.error})"
        kept = status.kept(is_lost=event.error is not None)
        self._state.announce(f"trial {event.trial} {kept}{why}, and continues on other workers: {reason}")

    def _take_end(self, status: TrialStatus, event: Ended) -> None:
        status.holds = {}
        if event.saved_step is not None:
            status.saved_step = event.saved_step
            self._recorder.trials.saved(event.trial, event.saved_step)
        ended = event.timestamp_ms / 1000
        if status.spans and status.spans[-1].ended is None:
            status.spans[-1] = replace(status.spans[-1], ended=ended)
            spent = self._state.ledger.of(event.trial)
            spent.end(ended, failed=event.error is not None)
            self._recorder.trials.record_spans(status.trial, status.spans, spent.account(ended))
        self._save_diagnosis(status, event)
        if event.halved_to is not None:
            self._state.announce(f"trial {event.trial}: {event.error}")
        elif event.moved is not None:
            self._take_move(status, event, event.moved)
        elif event.error is not None:
            self._take_failure(status, event, event.error)

    def _take_failure(self, status: TrialStatus, event: Ended, error: str) -> None:
        if event.suspected:
            self._state.suspected.put(event.suspected)
        self._record_break(status, event.timestamp_ms / 1000, error, moved=False)
        status.failure = f"trial {event.trial}: attempt {status.attempts} failed: {error}"
        self._state.end_if_storage_failed(error)

    def _save_diagnosis(self, status: TrialStatus, event: Ended) -> None:
        """Save the errors of an attempt's workers and their last collective operations, even if it has not failed."""
        if event.failure is not None:
            text = traceback_text(event.trial, status.attempts, [event.failure, *event.others])
            self._save(event.trial, traceback_name(status.attempts), text)
        for rank, record in enumerate(event.flight_records):
            if record is not None:
                self._save(event.trial, flight_record_name(status.attempts, rank), record)

    def _begin_again(self, status: TrialStatus) -> None:
        """Record that a trial's next attempt begins after a failed one."""
        self._state.announce(f"{status.failure}; it is tried again, from its newest checkpoint if it has one")
        status.failure = None
        status.begin_again()
        self._recorder.trials.record_attempt(status.trial, status.attempts)
        values = f": {describe(status.parameters)}" if status.parameters else ""
        self._state.announce(f"trial {status.trial} started, attempt {status.attempts}{values}")

    def _record_break(self, status: TrialStatus, ended: float, reason: str, *, moved: bool) -> None:
        """Record that an attempt has failed or moved."""
        status.failures.append(FailedAttempt(attempt=status.attempts, ended=ended, error=reason, moved=moved))
        self._recorder.trials.record_failures(status.trial, status.failures)

    def _save(self, trial: str, name: str, text: str) -> None:
        """Write a file into the trial's log folder, and attach it to the trial's run."""
        folder = logs_folder(self._state.folder, trial)
        with contextlib.suppress(OSError):  # the disk is full, or the folder is another machine's: MLflow has the text
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8", errors="replace")
        self._recorder.trials.attach(trial, f"{LOGS}/{name}", text)

    def _take_metrics(self, status: TrialStatus, event: Log) -> None:
        if status.is_pruned or status.state == "pruned":  # measured before its workers heard of it
            if isinstance(event, Report) and event.checkpoint is not None:  # it may have replaced earlier ones
                self._record_checkpoint(status, event, event.checkpoint, event.held)
            return
        status.has_lost_events = False  # workers post first what was lost
        competes = isinstance(event, Report) and event.competes
        values = self._take_log(status, event, competes=competes)
        if isinstance(event, Report) and competes:
            self._take_report(status, event, values)

    def _take_log(self, status: TrialStatus, event: Log, *, competes: bool) -> Values | None:
        values = self._record_log(event, competes=competes)
        if self._state.memory is not None and status.stage is None:  # a stage's trials may need less
            self._state.memory.observe(event.trial, status.parameters, event.metrics)
            self._state.memory.observe_limits(event.metrics)
        if self._state.pools is not None and status.pool is not None:
            self._state.pools.observe(status.pool, event.metrics)
        status.take_step(event.step, event.timestamp_ms / 1000)
        status.speed = _speed(event.metrics) or status.speed
        if status.training_since is not None:
            now = event.timestamp_ms / 1000
            status.train_s += max(0.0, now - status.training_since)  # clocks may be set back
            status.training_since = now
        return values

    def _record_log(self, event: Log, *, competes: bool) -> Values | None:
        metrics = {name: value for name, value in event.metrics.items() if name not in SPENT_METRICS}
        return self._recorder.trials.log(event.trial, event.step, metrics, event.timestamp_ms, competes=competes)

    def _take_report(self, status: TrialStatus, report: Report, values: Values | None) -> None:
        self._state.ledger.of(report.trial).report(report)
        objectives = self._state.objectives
        status.violation = status.violation or objectives.violation(report.metrics)
        if values is not None:
            if objectives.improves(values, status.values):
                status.values, status.value_step = values, report.step
            status.add_point(report.step, values[0])
        if report.checkpoint is not None:
            self._record_checkpoint(status, report, report.checkpoint, report.held)

    def _record_checkpoint(self, status: TrialStatus, event: Log, checkpoint: str, held: str | None) -> None:
        """Record the checkpoint of an event. It is the trial's best checkpoint if its values are the best of all
        checkpoints; the best report may have none."""
        status.saved_step = event.step
        objectives, kept = self._state.objectives, self._state.composition.config.checkpoint.keep
        kinds: list[CheckpointKind] = ["last"]
        values = objectives.values(event.metrics)
        if values is not None and objectives.improves(values, status.saved):
            status.saved = values
            kinds.append("best")
        wanted = [kind for kind in kinds if kind in kept]
        weights = Weights(event.step, values or ())
        self._recorder.trials.record_checkpoint(status.trial, checkpoint, *wanted, held=held, weights=weights)

    def _record_exploit(self, trial: str, num_exploits: int) -> bool:
        """Record the exploit of this number of a trial, if there is one; return whether it is new."""
        exploit = self._exploits.get((trial, num_exploits))
        if exploit is None:
            return False
        origin, status = exploit.origin, self._state.trials[trial]
        status.saved_step = origin.step
        last = self._exploits.get((trial, num_exploits - 1))
        before = self._initial.get(trial, status.parameters) if last is None else last.parameters
        changed = {path: value for path, value in exploit.parameters.items() if before.get(path) != value}
        is_new = self._recorder.trials.record_exploit(trial, num_exploits, origin.step, changed)
        if is_new:
            status.step = origin.step
            values = f" with {describe(changed)}" if changed else ""
            self._state.announce(f"trial {trial} continues from trial {origin.trial}'s step {origin.step}{values}")
        return is_new


def _speed(metrics: dict[str, float]) -> str:
    for unit in ("tokens", "samples"):
        if (rate := metrics.get(f"train/{unit}_per_second")) is not None:
            return f"{rate:,.0f} {unit}/s"
    return ""
