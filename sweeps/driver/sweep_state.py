"""State of a running sweep: its trials, the best trials, and the number of trials in each state."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, cast

from sweeps.config.objectives import Objectives, Values
from sweeps.driver.early_end import Shutdown
from sweeps.driver.pool_choice import PoolChoice
from sweeps.driver.time_ledger import TimeLedger
from sweeps.driver.trial_status import State, TrialStatus
from sweeps.driver.usage import UsageMeter
from sweeps.errors import StorageFailed, mentions_storage_failure
from sweeps.runtime.shared_folder import SharedFolder
from sweeps.runtime.trials_at_once import Fit
from sweeps.search.budget import exhausted_budget, remaining_s
from sweeps.tracking.forecast_record import Forecast
from sweeps.tracking.record import ended_spans

if TYPE_CHECKING:
    from sweeps.compose import Composition
    from sweeps.config.search import Stop
    from sweeps.plan.stage import PlannedStage
    from sweeps.search.advisors.memory import MemoryEstimate
    from sweeps.tracking.record import SweepRecord, TrialRecord


class View(Protocol):
    """Shows a running sweep to a person."""

    def changed(self, state: SweepState) -> None:
        """Show the sweep's changed state; called often."""

    def event(self, state: SweepState, text: str) -> None:
        """Show an event in one line."""

    def starting(self, text: str) -> None:
        """Show a step of the start, before the search begins. A view may omit this method."""


@dataclass
class SweepState:
    """State of a sweep in this session of its driver, used by several threads under ``lock``."""

    sweep: str
    composition: Composition
    view: View
    concurrent: int
    """Number of trials at a time."""
    shutdown: Shutdown
    folder: Path = field(default_factory=Path)
    shared: SharedFolder | None = None
    """The folder with the mark of this session, once trials may start; None in an object store."""
    fit: Fit = field(default_factory=lambda: Fit(use_gpu=False, per_worker={}, num_workers=1, concurrent=1))
    """Resources of a trial in each pool, as of the start of the session."""
    lanes_found: int = 1
    """Trials that a worker group trains at a time; with ``scaling.trials_per_group=auto`` the fastest number so far."""
    has_found_lanes: bool = False
    """Whether ``lanes_found`` is final."""
    earlier: SweepRecord | None = None
    """Record of the sweep's earlier sessions; None in its first one."""
    memory: MemoryEstimate | None = None
    """Estimator of a trial's memory, which learns from the trials that ran."""
    suspected: SimpleQueue[tuple[str, ...]] = field(default_factory=SimpleQueue)
    """Ids of the nodes of failed attempts that are to be checked."""
    trials: dict[str, TrialStatus] = field(default_factory=dict)
    """All trials by id, including repeats of the best ones."""
    num_trials: int = 0
    """Number of trials that the sweep can start; 0 means ``search.num_trials``."""
    winner: str | None = None
    """Best trial according to its repeats; None while it is not confirmed."""
    forecast: Forecast | None = None
    """Latest forecast; None before the first trial has ended."""
    stage: PlannedStage | None = None
    """Stage of the search whose trials are training; None: the sweep itself."""
    to_repeat: Collection[str] = ()
    """Ids of the repeats that were certain to start or to continue; some may have done so since."""
    started: float = field(default_factory=time.time)
    """Unix time at which this session began."""

    def __post_init__(self) -> None:
        search = self.composition.config.search
        self.objectives = Objectives.of(search)
        self.num_trials = self.num_trials or search.num_trials
        self.places = self.fit.places
        self.excluded_nodes = self.fit.excluded_nodes
        """Ids of the nodes on which no worker is placed: those that a check has found unfit, or that leave."""
        self.awaits = self.fit.needs if self.fit.may_grow else None
        """Description of one trial's resources if the cluster may have to grow for them; None otherwise."""
        self.pools = PoolChoice(self.fit.pools, self.memory) if self.fit.pools else None
        self.lock = threading.RLock()
        if self.earlier is not None:
            self.trials |= {trial.trial: _status_of(self.earlier, trial) for trial in self.recorded_trials()}
        self.ledger = TimeLedger(self.earlier)
        self._usage = UsageMeter(self.earlier, self.ledger)
        self._front: list[TrialStatus] = []
        """Result of the last call of ``front``."""

    def announce(self, text: str) -> None:
        """Show an event in one line."""
        self.view.event(self, text)

    def recorded_trials(self) -> list[TrialRecord]:
        """The recorded trials of earlier sessions."""
        return self.earlier.all_trials if self.earlier is not None else []

    @property
    def all_trials(self) -> list[TrialStatus]:
        """Copy of the current list of trials, which other threads cannot change while it is read."""
        return [*self.trials.values()]

    def trials_of(self, stage: PlannedStage | None = None) -> list[TrialStatus]:
        """The trials of a stage of the search, or of the search after its stages, without repeats of the best ones."""
        return [each for each in self.all_trials if each.is_of(stage)]

    @property
    def planned_now(self) -> int:
        """Planned number of trials in the current stage, or in the search after its stages."""
        return self.num_trials if self.stage is None else self.stage.num_trials

    @property
    def repeats(self) -> list[TrialStatus]:
        """The trials that repeat the best ones with other seeds."""
        return [each for each in self.all_trials if each.repeat_of is not None]

    @property
    def unfinished_repeats(self) -> int:
        """Number of repeats that run or will run, without those that wait because their trial is no longer among the
        best."""
        return self._repeats_to_come + sum(each.state == "running" for each in self.repeats)

    @property
    def _repeats_to_come(self) -> int:
        known = (self.trials.get(each) for each in self.to_repeat)
        return sum(each is None or each.state == "waiting" for each in known)

    @property
    def shared_by(self) -> int:
        """Number of trials that train on one worker group."""
        return self.lanes_found if self.fit.finds_lanes else self.fit.lanes

    def eval_every(self, status: TrialStatus) -> int:
        """Steps between two evaluations of a trial; 1 for a user's own training, which counts its reports."""
        loop = self.composition.trial(status.parameters).loop
        return 1 if loop is None else loop.eval_every

    def end_if_storage_failed(self, reason: str) -> None:
        """End the sweep, so that it can be resumed, if the reason of a trial's failure is a full or failed disk of the
        sweep's folder, or if that folder is gone."""
        if self.shared is not None and not self.shared.is_seen():
            trouble = (
                "it was unmounted, moved or removed; without it the sweep cannot go on, but MLflow has its results"
            )
            self.shutdown.storage_has_failed(StorageFailed(self.folder, trouble))
        elif mentions_storage_failure(reason, self.folder):
            self.shutdown.storage_has_failed(StorageFailed(self.folder, reason))

    # --- trials that change their state -----------------------------------------------------------------------

    def reopen(self, trial: str) -> None:
        """Set an ended trial back to waiting, so that it can start again."""
        status = self.trials.get(trial)
        if status is not None and status.state not in ("waiting", "running"):
            status.earlier_attempts += status.attempt
            status.attempt, status.retries = 0, 0
            status.state, status.ending = "waiting", False

    def is_unwanted(self, trial: str) -> bool:
        """Whether a person has asked to stop a trial for good."""
        status = self.trials.get(trial)
        return status is not None and status.is_unwanted

    def extend(self, composition: Composition, num_trials: int) -> None:
        """Continue with an extended plan."""
        with self.lock:
            self.composition, self.num_trials = composition, num_trials

    @property
    def stop(self) -> Stop:
        """Budgets and goals of the sweep, which an extension may change."""
        return self.composition.config.search.stop

    def count_usage(self) -> None:
        """Add the usage since the last call; if a budget is spent, end the search."""
        running = self._holding()
        if self.fit.is_elastic:
            held = [len(each.spans[-1].workers) if each.spans else 0 for each in running]
            empty = max(0, self.places - sum(held))
        else:
            held = [self.fit.of(each.pool).num_workers for each in running]
            empty = max(0, self.concurrent - len(running)) * self.fit.num_workers
        idle = 0 if self._more_to_come() else empty
        self._usage.count(running, sum(held) + empty, idle, self.lanes_found)
        if self.shutdown.budget_spent is None and (reason := exhausted_budget(self.stop, self._usage.used)) is not None:
            self.announce(f"{reason}: running trials save their state and end")
            self.shutdown.budget_is_spent(reason)

    def _holding(self) -> list[TrialStatus]:
        """Return the trials that hold workers. Tune starts a trial as soon as another one has its last result. Until
        the ended trial's workers are gone, both count as running, and the trial whose workers do not train yet is left
        out."""
        running = [each for each in self.all_trials if each.state == "running" and each.holds]  # paused trials do not
        training = [each for each in running if each.has_workers]
        if self.fit.is_elastic or len(training) == len(running):
            return running
        starting = [each for each in running if not each.has_workers]
        return training + starting[: max(0, self.concurrent - len(training))]

    def budget_left_s(self) -> float:
        """Return the seconds until a budget is spent; infinity without budgets."""
        return remaining_s(self.stop, self._usage.used)

    def resume_within_budget(self) -> None:
        """Let trials run again if the spent budget has been raised."""
        with self.lock:
            if self.shutdown.budget_spent is not None and exhausted_budget(self.stop, self._usage.used) is None:
                self.shutdown.budget_is_raised()

    # --- results ----------------------------------------------------------------------------------------------

    def front(self) -> list[TrialStatus]:
        """The best trial so far, or the Pareto front of several objectives; the winner once it is confirmed."""
        if self.winner is not None:
            return [self.trials[self.winner]]
        candidates = {status.trial: status.values for status in self.candidates() if status.values is not None}
        self._front = [self.trials[trial] for trial in self.objectives.front(candidates)]
        return [*self._front]

    def is_in_front(self, status: TrialStatus) -> bool:
        """Whether a trial is in ``front``. Usually the last computed front already dominates it, and no new one is
        computed."""
        if self.winner is None and any(self._is_better(each, status) for each in self._front):
            return False
        return any(each is status for each in self.front())

    def _is_better(self, one: TrialStatus, other: TrialStatus) -> bool:
        """Whether a trial of the search dominates another one."""
        if one.values is None or not self._may_be_best(one, None):
            return False
        return other.values is None or self.objectives.dominates(one.values, other.values)

    def candidates(self, stage: PlannedStage | None = None) -> list[TrialStatus]:
        """Return the trials that can be the best of a stage, or of the search after its stages. These include pruned
        ones, whose values are those of a real checkpoint."""
        return [status for status in self.all_trials if self._may_be_best(status, stage)]

    def ranked(self, stage: PlannedStage | None) -> list[TrialStatus]:
        """The ``candidates`` with a finite value, best first."""
        valued = [each for each in self.candidates(stage) if each.value is not None and math.isfinite(each.value)]
        return sorted(valued, key=lambda each: (self.objectives.loss(each.value or 0.0), each.trial))

    def _may_be_best(self, status: TrialStatus, stage: PlannedStage | None) -> bool:
        is_valid = status.values is not None and status.state != "failed" and status.violation is None
        return is_valid and status.is_of(stage)

    def describe_values(self, values: Values) -> str:
        """Describe the values of the objectives, as ``eval/loss 1.234``."""
        return ", ".join(f"{metric} {value:.4g}" for metric, value in zip(self.objectives.metrics, values, strict=True))

    def counts(self, stage: PlannedStage | None = None) -> dict[str, int]:
        """Number of trials in each state, of a stage or of the search after its stages."""
        counts = dict.fromkeys(("finished", "pruned", "failed", "running", "stopped"), 0)
        for status in self.trials_of(stage):
            if status.state in counts:
                counts[status.state] += 1
        return counts

    def ended_count(self) -> int:
        """Number of trials of the search that have ended."""
        return sum(status.has_ended for status in self.trials_of())

    @property
    def progress(self) -> str:
        """Ended and planned trials of the current stage or the search: ``stage 1: 3/30``."""
        ended = sum(status.has_ended for status in self.trials_of(self.stage))
        return f"{'' if self.stage is None else f'stage {self.stage.number}: '}{ended}/{self.planned_now}"

    def unfinished_count(self, *, is_over: bool) -> int:
        """Number of trials and repeats that run, wait, or will still be suggested.

        Args:
            is_over: Whether the search suggests no further trials.
        """
        searched = self.trials_of(self.stage)
        known = len(searched) if is_over else max(len(searched), self.planned_now)
        ended = sum(status.has_ended for status in searched)
        return known - ended + self.unfinished_repeats

    def _more_to_come(self) -> bool:
        """Whether further trials will be started."""
        if self.shutdown.interrupts_trials():
            return False
        waits = any(each.state == "waiting" and each.repeat_of is None for each in self.all_trials)
        return waits or self.stage is not None or self._repeats_to_come > 0 or len(self.trials_of()) < self.num_trials

    @property
    def wall_s(self) -> float:
        """Seconds that the sweep has run in all sessions."""
        return self._usage.used.wall_s

    def time(self) -> dict[str, Any]:
        """Time and resources of all sessions so far, as ``UsageMeter.summary`` returns them."""
        return self._usage.summary(self.all_trials, self.started)


def _status_of(earlier: SweepRecord, trial: TrialRecord) -> TrialStatus:
    """Status of a trial of an earlier session."""
    # "running" also stands for a trial whose driver died while restarting it only to stop it for good.
    unfinished = trial.state == "running" or (trial.state == "stopped" and not trial.stopped_for_good)
    return TrialStatus(
        trial.trial,
        trial.params,
        "waiting" if unfinished else cast("State", trial.state),
        repeat_of=trial.repeat_of,
        stage=trial.stage,
        attempt=0 if unfinished else trial.attempts,
        earlier_attempts=trial.attempts if unfinished else 0,
        step=trial.steps,
        values=trial.all_values() or None,
        value_step=trial.best_step,
        has_reported=trial.value is not None,
        saved=_saved_values(trial),
        violation=trial.violation,
        error=trial.error,
        spans=[replace(span, ended=ended) for span, ended in ended_spans(earlier, trial)],
        failures=list(trial.failures),
        notes=list(trial.notes),
        is_unwanted=trial.stopped_for_good,
    )


def _saved_values(trial: TrialRecord) -> Values | None:
    """Values of a trial's best checkpoint; for the record of an older version, those of its best report."""
    if "best" not in trial.checkpoints:
        return None
    weights = trial.weights.get("best")
    return (trial.all_values() if weights is None else weights.values) or None
