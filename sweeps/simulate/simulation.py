"""Discrete-event simulation of a search: what Tune's controller does, without workers and in no time.

The searcher, its sampler and the scheduler are those of a sweep, and are called as Tune calls them. Only training is
replaced: a trial's reports come from a ``CurveSource``, at the simulated times at which they would be made.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from sweeps.constants import COMPLETED, EVALUATIONS, PARAMETERS, SECONDS, STEP, STEPS, TRIAL
from sweeps.search.budget import Usage
from sweeps.search.schedulers.pause_aware_limiter import PauseAwareLimiter
from sweeps.search.searcher import OptunaSearcher
from sweeps.simulate.curve_source import CurveSource, Report


class Reported(NamedTuple):
    """A report at its simulated time."""

    time_s: float
    trial: int
    """Number of the trial."""
    step: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class Outcome:
    """Course of a simulated search."""

    reports: list[Reported]
    """All reports, in the order of their times."""
    wall_s: float
    """Simulated time at which the last trial ended."""
    train_s: float
    """Seconds that trials trained, summed over all trials."""
    seconds: dict[int, tuple[float, float]]
    """Start and end of each trial, by number."""
    ended_because: str | None
    """Reason for which no further trial was started."""


class SimulatedTrial:
    """A trial as schedulers see it."""

    placement_group_factory = None

    def __init__(self, trial_id: str, number: int, point: dict[str, Any], curve: list[Report], now: float):
        self.trial_id, self.number = trial_id, number
        self.config = {TRIAL: f"{number:04}", PARAMETERS: point}
        self.curve, self.began, self.ended = curve, now, now
        self.status = Trial.RUNNING
        self.position = 0
        """Number of reports made."""
        self.last_result: dict[str, Any] = {}

    def __repr__(self) -> str:
        return str(self.config[TRIAL])

    def is_finished(self) -> bool:
        """Whether it has ended."""
        return self.status == Trial.TERMINATED

    def step_s(self) -> float:
        """Seconds from its last report to its next one."""
        before = self.curve[self.position - 1].elapsed_s if self.position else 0.0
        return max(self.curve[self.position].elapsed_s - before, 1e-9)

    def report(self) -> dict[str, Any]:
        """The next result, as the trainable of a sweep returns it."""
        made, self.position = self.curve[self.position], self.position + 1
        self.last_result = {
            EVALUATIONS: self.position,
            STEPS: made.step,
            SECONDS: made.elapsed_s,
            **made.metrics,
            STEP: made.step,
            "training_iteration": self.position,
            COMPLETED: self.position == len(self.curve),
        }
        return dict(self.last_result)


@dataclass
class Simulation:
    """A search on simulated workers; each runs one trial at a time. Schedulers take it for Tune's controller."""

    searcher: OptunaSearcher
    """Suggests the points; a new one."""
    scheduler: TrialScheduler
    """Decides which trials continue; a new one, with metric and mode set."""
    source: CurveSource
    """Answers how trials train."""
    workers: int
    """Number of trials that run at once."""
    exhausted: Callable[[Usage], str | None] = lambda usage: None
    """Returns why the search ends now, with all its trials; None while it may go on. ``Usage`` holds the simulated wall
    time, and with the next field the resources that were used."""
    holds: dict[str, float] = field(default_factory=dict)
    """Amounts of CPUs and GPUs that a trial holds, and its ``cost`` for an hour."""
    usage: Usage = field(default_factory=Usage)
    """Time and resources used so far."""
    max_train_s: float = math.inf
    """Seconds of training, summed over all trials, after which the search ends."""

    def __post_init__(self) -> None:
        self.limiter = PauseAwareLimiter(self.searcher, self.workers)
        self.search_alg = SimpleNamespace(searcher=self.limiter)
        self._actor_cache = SimpleNamespace(increase_max=lambda request, by: None)  # schedulers that pause size Tune's
        self._trials: list[SimulatedTrial] = []
        self._live: dict[str, SimulatedTrial] = {}
        self._events: list[tuple[float, int, SimulatedTrial]] = []
        self._order = itertools.count()
        self._now, self._train_s = 0.0, 0.0
        self._pauses = hasattr(self.scheduler, "ready")
        self._reports: list[Reported] = []

    def run(self) -> Outcome:
        """Search until no trial is left, or a budget is used up."""
        ended: str | None = None
        self._fill()
        while self._events and ended is None:
            now, _, trial = heapq.heappop(self._events)
            self._use(now)
            ended = self.exhausted(self.usage)
            if ended is None and self._train_s + trial.step_s() > self.max_train_s:
                ended = f"trials have trained for {self._train_s:.6g} s"
            if ended is None:
                self._report(trial)
                self._fill()
        for trial in self._live.values():
            trial.ended = self._now
        return Outcome(
            self._reports,
            self._now,
            self._train_s,
            {trial.number: (trial.began, trial.ended) for trial in self._trials},
            ended or self.searcher.ended_because,
        )

    def _use(self, now: float) -> None:
        """Advance the time to ``now``, and count what was used."""
        running = sum(trial.status == Trial.RUNNING for trial in self._live.values())
        passed, self._now = now - self._now, now
        self.usage.wall_s = now
        self.usage.cpu_s += passed * running * self.holds.get("CPU", 0.0)
        self.usage.gpu_s += passed * running * self.holds.get("GPU", 0.0)
        self.usage.cost += passed * running * self.holds.get("cost", 0.0) / 3600

    def _fill(self) -> None:
        """Start trials, and resume paused ones, as long as a worker is free and there is one."""
        while True:
            held = self.limiter.holds_new
            started = self._start()
            resumed = self._resume() if self._pauses else False
            if not started and not resumed and self.limiter.holds_new == held:
                return

    def _start(self) -> bool:
        trial_id = str(len(self._trials))
        point = self.limiter.suggest(trial_id)
        if not isinstance(point, dict):
            return False
        number = self.searcher.number(trial_id)
        trial = SimulatedTrial(trial_id, number, point, self.source.curve(point), self._now)
        self._trials.append(trial)
        self._live[trial_id] = trial
        self.scheduler.on_trial_add(cast("Any", self), cast("Any", trial))
        self._continue(trial)
        return True

    def _resume(self) -> bool:
        trial = cast("SimulatedTrial | None", self.scheduler.choose_trial_to_run(cast("Any", self)))
        if trial is None:
            return False
        trial.status = Trial.RUNNING
        self._continue(trial)
        return True

    def _continue(self, trial: SimulatedTrial) -> None:
        heapq.heappush(self._events, (self._now + trial.step_s(), next(self._order), trial))

    def _report(self, trial: SimulatedTrial) -> None:
        self._train_s += trial.step_s()
        result = trial.report()
        metrics = dict(trial.curve[trial.position - 1].metrics)
        self._reports.append(Reported(self._now, trial.number, result[STEP], metrics))
        if result[COMPLETED]:
            self.stop_trial(trial)
            return
        decision = self.scheduler.on_trial_result(cast("Any", self), cast("Any", trial), result)
        if decision == TrialScheduler.STOP:
            self.stop_trial(trial)
            return
        self.limiter.on_trial_result(trial.trial_id, result)
        if decision == TrialScheduler.PAUSE:
            trial.status, trial.ended = Trial.PAUSED, self._now
            self.limiter.pause(trial.trial_id)
        else:
            self._continue(trial)

    # --- asked by schedulers that pause trials --------------------------------------------------------------------

    def get_trials(self) -> list[SimulatedTrial]:
        """All trials."""
        return self._trials

    def get_live_trials(self) -> list[SimulatedTrial]:
        """The trials that have not ended."""
        return list(self._live.values())

    def stop_trial(self, trial: SimulatedTrial) -> None:
        """End a trial, in the order in which Tune tells the scheduler and the searcher."""
        if trial.status == Trial.PAUSED:
            self.scheduler.on_trial_remove(cast("Any", self), cast("Any", trial))
            self.limiter.on_trial_complete(trial.trial_id)
        else:
            self.scheduler.on_trial_complete(cast("Any", self), cast("Any", trial), dict(trial.last_result))
            self.limiter.on_trial_complete(trial.trial_id, dict(trial.last_result))
            trial.ended = self._now
        trial.status = Trial.TERMINATED
        del self._live[trial.trial_id]
