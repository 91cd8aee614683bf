"""What is known of a running sweep: fed by Tune and by the broker, it feeds tracking and what a person sees."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from sweeps.compose.composition import config_as_yaml
from sweeps.config.objectives import Objectives, Values
from sweeps.constants import COMPLETED, HEARD, PARAMETERS, STOPPED, TRIAL
from sweeps.driver.trial_status import State, TrialStatus
from sweeps.errors import StorageFull, UserError, mentions_full_disk
from sweeps.runtime.checkpoint_layout import checkpoint_folders
from sweeps.runtime.placement import reserved_per_trial
from sweeps.runtime.report_log import read_report_log
from sweeps.search.budget import Usage, cost, exhausted_budget
from sweeps.tracking.failed_attempts import FailedAttempt
from sweeps.tracking.sessions import Session, with_session
from sweeps.tracking.spans import Span
from sweeps.tracking.summary import describe
from sweeps.trial_files import LOGS, logs_folder, traceback_name, traceback_text

if TYPE_CHECKING:
    from sweeps.compose import Composition
    from sweeps.runtime.events import Ended, Event, Log, Report, Started
    from sweeps.search.advisors.memory import MemoryEstimate
    from sweeps.search.schedulers.pbt import Exploit
    from sweeps.tracking.artifact_uploader import CheckpointKind
    from sweeps.tracking.record import SweepRecord, TrialRecord
    from sweeps.tracking.recorder import Recorder
    from sweeps.worker_error import WorkerError

Stopping = Literal["interrupted", "stopped"]
"""By a signal, or from another terminal."""
DRAIN_TIMEOUT_S = 0.5
UNFINISHED = ("running", "stopped")
"""Recorded states of trials that go on when their sweep does."""


class View(Protocol):
    """Shows a sweep to a person."""

    def changed(self, monitor: Monitor) -> None:
        """Something happened; called often."""

    def event(self, monitor: Monitor, text: str) -> None:
        """Something happened that is worth a line."""

    def starting(self, text: str) -> None:
        """Shows a step of the start, before the sweep begins. A view may lack this method."""


@dataclass
class Monitor:
    """The state of all trials. Tune's callbacks come on the driver's main thread, the broker's events on our own."""

    sweep: str
    composition: Composition
    recorder: Recorder
    view: View
    concurrent: int
    folder: Path = field(default_factory=Path)
    """The sweep's own."""
    use_gpu: bool = False
    earlier: SweepRecord | None = None
    """What is recorded of the sessions before this one."""
    memory: MemoryEstimate | None = None
    """Learns what trials take, and says so before one starts."""
    broker: Any = None
    trials: dict[str, TrialStatus] = field(default_factory=dict)
    started: float = field(default_factory=time.time)
    stopping: Stopping | None = None
    """How the sweep ends, once a person has asked for that, or a disk is full."""
    full: StorageFull | None = None
    """A disk is."""
    budget_spent: str | None = None
    """The budget that is used up, in words."""

    def __post_init__(self) -> None:
        search = self.composition.config.search
        self.stop = search.stop
        self.objectives = Objectives.of(search)
        self.metric = self.objectives.metrics[0]
        self.num_trials = search.num_trials
        self._usage = Usage()
        self._counted = time.monotonic()
        self._train_s_before, self._ended_before, self._wall_s_before = 0.0, 0, 0.0
        self._sessions: tuple[Session, ...] = ()
        """The earlier ones."""
        if self.earlier is not None:
            self._take_over(self.earlier)
        self._lock = threading.RLock()
        self._news: list[tuple[str, State | None, str | None]] = []
        """News from Tune, in order: a trial's end with its error, or a line about it without a state."""
        self._retried: list[str] = []
        self._early: dict[str, list[Event]] = {}
        self._exploits: dict[tuple[str, int], Exploit] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="monitor", daemon=True)

    def is_interrupted(self) -> bool:
        """Whether trials that are stopped now go on in another session."""
        return self.stopping is not None or self.budget_spent is not None

    def __reduce__(self) -> tuple[type[object], tuple[()]]:
        # Tune pickles its callbacks for a restore that we do not use; a monitor belongs to its driver.
        return object, ()

    def _take_over(self, earlier: SweepRecord) -> None:
        for trial in earlier.trials:
            unfinished = trial.state in UNFINISHED
            self.trials[trial.trial] = TrialStatus(
                trial.trial,
                trial.params,
                "waiting" if unfinished else cast("State", trial.state),
                attempt=0 if unfinished else trial.attempts,
                earlier_attempts=trial.attempts if unfinished else 0,
                step=trial.steps,
                values=trial.values or (None if trial.value is None else (trial.value,)),
                violation=trial.violation,
                error=trial.error,
                spans=list(trial.spans),
                failures=list(trial.failures),
            )
        time_ = earlier.time
        self._usage = Usage(time_.wall_s, time_.cpu_s, time_.gpu_s)
        self._wall_s_before = time_.wall_s
        self._sessions = time_.sessions or ((earlier.started, earlier.started + time_.wall_s),)
        self._train_s_before, self._ended_before = time_.train_s, self.ended_count()

    def catch_up(
        self, trial: str, parameters: dict[str, Any], state: State, error: str | None, last: int | None
    ) -> None:
        """A trial ended in an earlier session, whose driver died before it had recorded that.

        Args:
            trial: Its id.
            parameters: Its point.
            state: How it ended.
            error: Why it failed.
            last: The last step that counts; default: all do.
        """
        status = self.trials.setdefault(trial, TrialStatus(trial, parameters))
        if status.state != "waiting":
            return
        status.earlier_attempts = max(1, status.earlier_attempts)
        self.recorder.trials.start(trial, parameters, self.composition.as_yaml(parameters), status.earlier_attempts)
        self._take_measured(trial, last)
        self._finish(trial, state, error)

    def reopen(self, trial: str) -> None:
        """A trial that had ended is to go on, as a longer one."""
        status = self.trials.get(trial)
        if status is not None and status.state not in ("waiting", "running"):
            status.earlier_attempts, status.attempt, status.state = status.attempt, 0, "waiting"
            self._ended_before = self.ended_count()

    # --- what Tune says --------------------------------------------------------------------------------------

    def trial_started(self, config: dict[str, Any], attempt: int) -> None:
        """It starts, starts again after a failure, or goes on after a pause."""
        trial, parameters = config[TRIAL], config[PARAMETERS]
        with self._lock:
            status = self.trials.setdefault(trial, TrialStatus(trial, parameters))
            goes_on = status.state == "running" and status.attempt == attempt
            status.state, status.attempt, status.ending = "running", attempt, False
            own = self.composition.trial(parameters)
            status.last_step = own.train.max_steps if own.train is not None else None
            status.needs = status.holds = reserved_per_trial(own.scaling, use_gpu=self.use_gpu)
            if goes_on:
                return
            status.assigned, status.training_since = time.time(), None
            attempt += status.earlier_attempts
            # Within the lock: what its workers post meanwhile must find the trial's run.
            self.recorder.trials.start(trial, parameters, config_as_yaml(own), attempt)
            self._take(self._early.pop(trial, ()))
        if self.earlier is not None and status.attempt == 1:  # what an earlier driver had not passed on
            # Workers post again the reports that Tune has not heard of: it may be that the trial stops before that.
            self._take_measured(trial, config.get(HEARD) if self.composition.config.search.judges_trials else None)
        again = f", attempt {attempt}" if attempt > 1 else ""
        memory = self.memory.describe(parameters) if self.memory is not None else ""
        details = "; ".join(part for part in (describe(parameters), memory) if part)
        line = f"trial {trial} started{again}{f': {details}' if details else ''}"
        with self._lock:
            self._news.append(
                (trial, None, line)
            )  # after the end of the trial before it, which is still being taken in

    def trial_ended(self, config: dict[str, Any], result: dict[str, Any], error: str | None = None) -> None:
        if error is not None:
            state: State = "failed"
        elif result.get(COMPLETED):
            state = "finished"
        elif result.get(STOPPED) or self.is_interrupted():
            state = "stopped"
        else:
            state = "pruned"
        if config[TRIAL] not in self.trials:  # its actor could not be made: Tune says no word of its start
            self.trial_started(config, 1)
        with self._lock:
            status = self.trials[config[TRIAL]]
            if status.state == "waiting" and state in ("pruned", "stopped"):  # paused in an earlier session, and since
                if state == "pruned":
                    self.catch_up(status.trial, status.parameters, state, None, None)
                return
            status.ending = True
        if state == "pruned":
            self._discard(status)
        with self._lock:
            self._news.append((config[TRIAL], state, error))

    def exploited(self, exploit: Exploit) -> None:
        """A trial is to go on from another one's state, and has not begun to; or it did in an earlier session."""
        with self._lock:
            self._exploits[exploit.trial, exploit.origin.lineage] = exploit

    def _discard(self, status: TrialStatus) -> None:
        """The scheduler has stopped it: its workers shall notice now, and what they measure until then is dropped,
        as it is no part of what scheduler and sampler learned from."""
        import ray

        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(self.broker.stop.remote(status.trial, discard=True))

    def stop_trial(self, trial: str) -> str:
        """A person wants the end of one trial, whether it runs, is paused or waits for another attempt.

        Raises:
            UserError: It has ended.
        """
        import ray

        with self._lock:
            status = self.trials.get(trial)
            if status is None or status.state not in ("running", "waiting") or status.ending:
                raise UserError(
                    f"trial {trial} of {self.sweep} does not run{f': it is {status.state}' if status else ''}"
                )
        ray.get(self.broker.stop_for_good.remote(trial))
        return f"trial {trial} saves its state and ends"

    def extend(self, composition: Composition, concurrent: int) -> None:
        """The sweep goes further than it was to, with so many trials at once."""
        with self._lock:
            self.concurrent = concurrent
            self.composition = composition
            self.num_trials, self.stop = composition.config.search.num_trials, composition.config.search.stop

    def go_on(self) -> None:
        """Tune is started again. Not before: trials that a spent budget has stopped are to stay unfinished until then,
        so that they go on, too."""
        with self._lock:
            if self.budget_spent is not None and exhausted_budget(self.stop, self._usage) is None:
                self.budget_spent = None
                self.broker.resume.remote()

    def all_ended(self) -> None:
        """Tune has stopped all trials together, of which it says nothing."""
        with self._lock:
            for status in self.trials.values():
                if status.state == "running" and not status.ending:
                    self.trial_ended({TRIAL: status.trial}, {})

    def trial_retried(self, config: dict[str, Any]) -> None:
        """It failed, and is started again."""
        with self._lock:
            self._retried.append(config[TRIAL])

    # --- what the workers say --------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Take in everything that was posted, and stop following."""
        self._closed.set()
        self._thread.join()
        try:
            for news in self._news:  # when the cluster is gone, the thread was before these ended
                self._take_news(*news)
            self._publish()
        except StorageFull as full:
            self.out_of_room(full)

    def _follow(self) -> None:
        import ray

        while True:
            closing = self._closed.is_set()
            with self._lock:
                news, self._news = self._news, []
                retried, self._retried = self._retried, []
            # Everything that a trial posted was posted before Tune heard of its end: draining after taking the ends
            # cannot miss any of it.
            timeout = 0.01 if closing or news or retried else DRAIN_TIMEOUT_S
            try:
                self._take(ray.get(self.broker.drain.remote(timeout)))
            except ray.exceptions.RayError:  # the cluster is gone; what was reported before has been taken
                self._closed.set()
            except StorageFull as full:  # what was reported is beside the checkpoints, too
                self.out_of_room(full)
            try:
                for trial in retried:
                    failure = self.trials[trial].failure or f"trial {trial}: its Tune actor died"
                    self.view.event(self, f"{failure}; it is tried again, from its newest checkpoint if it has one")
                for each in news:
                    self._take_news(*each)
                with self._lock:
                    self._publish()
            except StorageFull as full:
                self.out_of_room(full)
            except Exception:  # a fault in what is shown must not end what is recorded
                logging.getLogger(__name__).exception("the progress of the sweep could not be shown")
            with self._lock:
                if closing and not self._news:
                    return

    def out_of_room(self, full: StorageFull) -> None:
        """The sweep ends, so that nothing is measured that could not be kept; all of it can go on later."""
        if self.full is None:
            self.full = full
            self.stopping = self.stopping or "interrupted"
            self.broker.stop_all.remote()

    def recorded(self) -> list[TrialRecord]:
        """The trials of the sessions before this one."""
        return self.earlier.trials if self.earlier is not None else []

    def measured(self, trial: str) -> list[Report]:
        """The evaluations that a trial's workers have written down."""
        from sweeps.runtime.events import Report

        folders = checkpoint_folders(self.folder / "trials", trial)
        return [event for folder in folders for event in read_report_log(str(folder)) if isinstance(event, Report)]

    def _take_measured(self, trial: str, up_to: int | None = None) -> None:
        """What a trial's workers have written down, up to a step."""
        for lineage, folder in enumerate(checkpoint_folders(self.folder / "trials", trial)):
            if lineage < self.recorder.trials.exploits(trial):
                continue  # all of it was recorded before the trial went on from another one's state
            with self._lock:
                self._take_exploit(trial, lineage)
            self._take(read_report_log(str(folder), up_to))

    def _take(self, events: Iterable[Event]) -> None:
        from sweeps.runtime.events import Ended, Log, Note, Report, Started

        with self._lock:
            for event in events:
                status = self.trials.get(event.trial)
                if status is None:  # its workers were quicker than Tune
                    self._early.setdefault(event.trial, []).append(event)
                    continue
                if isinstance(event, Ended):
                    self._take_end(status, event)
                elif isinstance(event, Note):
                    self.view.event(self, f"trial {event.trial}: {event.text}")
                elif isinstance(event, Started):
                    status.training_since, status.holds = event.timestamp_ms / 1000, status.needs
                    self._open_span(status, event)
                    self._take_exploit(event.trial, event.origin.lineage if event.origin is not None else 0)
                elif isinstance(event, Log):
                    self._take_log(status, event)
                if isinstance(event, Report):
                    self._take_report(status, event)

    def _take_end(self, status: TrialStatus, event: Ended) -> None:
        status.holds = {}
        self._close_span(status, event)
        if event.halved_to is not None:
            self.view.event(self, f"trial {event.trial}: {event.error}")
        if event.error is not None and event.halved_to is None:
            attempt = status.attempt + status.earlier_attempts
            status.failure = f"trial {event.trial}: attempt {attempt} failed: {event.error}"
            status.failures.append(FailedAttempt(attempt=attempt, ended=event.timestamp_ms / 1000, error=event.error))
            self.recorder.trials.record_failures(event.trial, status.failures)
            if event.failure is not None:
                self._keep_tracebacks(event.trial, attempt, [event.failure, *event.others])
            if mentions_full_disk(event.error):
                self.out_of_room(StorageFull(self.folder, event.error))

    def _keep_tracebacks(self, trial: str, attempt: int, errors: list[WorkerError]) -> None:
        text, name = traceback_text(trial, attempt, errors), traceback_name(attempt)
        folder = logs_folder(self.folder, trial)
        with contextlib.suppress(OSError):  # on a full disk, or where the folder is another machine's: MLflow has it
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8", errors="replace")
        self.recorder.trials.attach(trial, f"{LOGS}/{name}", text)

    def _take_log(self, status: TrialStatus, event: Log) -> None:
        self.recorder.trials.log(event.trial, event.step, event.metrics, event.timestamp_ms)
        if self.memory is not None:
            self.memory.observe(event.trial, status.parameters, event.metrics)
        status.step = event.step
        status.speed = _speed(event.metrics) or status.speed
        if status.training_since is not None:
            now = event.timestamp_ms / 1000
            status.train_s += now - status.training_since
            status.training_since = now

    def _open_span(self, status: TrialStatus, event: Started) -> None:
        held = event.assigned_ms or event.timestamp_ms
        status.spans.append(Span(held=held / 1000, trained=event.timestamp_ms / 1000, workers=event.workers))
        self.recorder.trials.record_spans(status.trial, status.spans)

    def _close_span(self, status: TrialStatus, event: Ended) -> None:
        if status.spans and status.spans[-1].ended is None:
            status.spans[-1] = replace(status.spans[-1], ended=event.timestamp_ms / 1000)
            self.recorder.trials.record_spans(status.trial, status.spans)

    def _take_exploit(self, trial: str, lineage: int) -> None:
        exploit = self._exploits.get((trial, lineage))
        if exploit is None:
            return
        origin = exploit.origin
        if self.recorder.trials.record_exploit(trial, lineage, origin.step, exploit.changed):
            values = f" with {describe(exploit.changed)}" if exploit.changed else ""
            self.view.event(self, f"trial {trial} goes on from trial {origin.trial}'s step {origin.step}{values}")

    def _take_report(self, status: TrialStatus, report: Report) -> None:
        values = self.objectives.values(report.metrics)
        best = values is not None and self.objectives.improves(values, status.values)
        status.latest = report.metrics.get(self.metric)
        status.violation = status.violation or self.objectives.violation(report.metrics)
        if best:
            status.values = values
        if report.checkpoint is not None:
            kinds: tuple[CheckpointKind, ...] = ("last", "best") if best else ("last",)
            wanted = [kind for kind in kinds if kind in self.composition.config.checkpoint.keep]
            self.recorder.trials.record_checkpoint(status.trial, report.checkpoint, *wanted, held=report.held)

    def _take_news(self, trial: str, state: State | None, text: str | None) -> None:
        if state is not None:
            self._finish(trial, state, text)
        elif text is not None:
            self.view.event(self, text)

    def _finish(self, trial: str, state: State, error: str | None) -> None:
        with self._lock:
            status = self.trials[trial]
            status.state, status.error = state, error
            is_best = status in self.front()
        self.recorder.trials.end(trial, state, status.step, status.attempt + status.earlier_attempts, error)
        self.recorder.trials.attach_logs(trial, logs_folder(self.folder, trial))
        text = f"trial {trial} {state} at step {status.step}"
        if status.values is not None:
            text += f", {self.describe_values(status.values)}"
        if status.violation is not None:
            text += f"; {status.violation}"
        if error is not None:
            text += f": {error}"
        if is_best:
            text += " (best so far)" if len(self.objectives.metrics) == 1 else " (on the Pareto front)"
        self.view.event(self, text)

    def _count_usage(self) -> None:
        """Adds what has been used since the last call, and ends the search when a budget is spent."""
        now = time.monotonic()
        passed, self._counted = now - self._counted, now
        self._usage.wall_s += passed
        for status in self.trials.values():
            if status.state == "running":
                self._usage.cpu_s += passed * status.holds.get("CPU", 0.0)
                self._usage.gpu_s += passed * status.holds.get("GPU", 0.0)
        if self.budget_spent is None and (reason := exhausted_budget(self.stop, self._usage)) is not None:
            self.budget_spent = reason
            self.view.event(self, f"{reason}: trials that run save their state and end")
            self.broker.stop_all.remote()

    def _publish(self) -> None:
        self._count_usage()
        front = [(each.trial, each.values, each.parameters) for each in self.front() if each.values is not None]
        self.recorder.update(self.counts(), front, self.time())
        self.view.changed(self)

    # --- what it comes to ------------------------------------------------------------------------------------

    def front(self) -> list[TrialStatus]:
        """The best trial so far, or of several objectives the Pareto front; a pruned trial's values are real ones of a
        real checkpoint, too."""
        candidates = {
            status.trial: status.values
            for status in self.trials.values()
            if status.values is not None and status.state != "failed" and status.violation is None
        }
        return [self.trials[trial] for trial in self.objectives.front(candidates)]

    def describe_values(self, values: Values) -> str:
        """``eval/loss 1.234``."""
        return ", ".join(f"{metric} {value:.4g}" for metric, value in zip(self.objectives.metrics, values, strict=True))

    def counts(self) -> dict[str, int]:
        counts = dict.fromkeys(("finished", "pruned", "failed", "running", "stopped"), 0)
        for status in self.trials.values():
            if status.state in counts:
                counts[status.state] += 1
        return counts

    def ended_count(self) -> int:
        return sum(status.state not in ("waiting", "running") for status in self.trials.values())

    def time(self) -> dict[str, Any]:
        """Of all sessions: seconds that the sweep ran, seconds of training summed over trials, goodput (the share of
        the time of all places for trials in which workers trained), seconds of CPUs and GPUs that trials held, what
        that cost, and when each session was."""
        wall = self._usage.wall_s
        train = self._train_s_before + sum(status.train_s for status in self.trials.values())
        return {
            "wall_s": wall,
            "train_s": train,
            "goodput": min(1.0, train / max(wall * self.concurrent, 1e-9)),
            "cpu_s": self._usage.cpu_s,
            "gpu_s": self._usage.gpu_s,
            "cost": cost(self.stop, self._usage),
            "sessions": with_session(self._sessions, self.started, self.started + wall - self._wall_s_before),
        }

    def remaining_s(self) -> float | None:
        """Estimated seconds to the end, from the pace so far."""
        ended = self.ended_count()
        if ended == self._ended_before:
            return None
        return (time.time() - self.started) / (ended - self._ended_before) * (self.num_trials - ended)


def _speed(metrics: dict[str, float]) -> str:
    for unit in ("tokens", "samples"):
        if (rate := metrics.get(f"train/{unit}_per_second")) is not None:
            return f"{rate:,.0f} {unit}/s"
    return ""
