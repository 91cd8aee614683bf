"""Discrete-event simulation of a search: runs the code of a sweep without workers and real time.

Sampler and scheduler are the same as in a sweep. Only training is replaced: a trial's reports come from a
``CurveSource``, at the simulated times at which they would be made.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from sweeps.config.search import Stop
from sweeps.constants import COMPLETED, EVALUATIONS, SECONDS, STEP, STEPS
from sweeps.search.budget import Usage, exhausted_budget, next_exhausted
from sweeps.search.schedulers.pausing import PausingScheduler
from sweeps.search.schedulers.places import Places
from sweeps.search.schedulers.scheduler import Result, Scheduler, Verdict
from sweeps.search.study_search import StudySearch
from sweeps.search.trial_ids import trial_id
from sweeps.simulate.recorded_table import Report
from sweeps.space.space import Point


class CurveSource(Protocol):
    """Source of the learning curve of a trial, at any point of a space."""

    def curve(self, point: Point) -> list[Report]:
        """Return all reports of a trial that trains to its end, in order; at least one."""


class Reported(NamedTuple):
    """A report at its simulated time."""

    time_s: float
    trial: int
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
    """Reason why no further trial was started."""


class SimulatedTrial:
    """Simulated trial, with the properties that schedulers see."""

    num_exploits = 0

    def __init__(self, number: int, point: dict[str, Any], curve: list[Report], now: float):
        self.number, self.id, self.parameters = number, trial_id(number), point
        self.curve, self.began, self.ended = curve, now, now
        self.status: Literal["running", "paused", "ended"] = "running"
        self.position = 0
        """Number of reports made."""
        self.group: list[SimulatedTrial] | None = None
        """Trials that train on the same workers, including this one; None while it does not train."""
        self.left_s = self.since = self.shared_s = 0.0
        """Remaining seconds to the trial's next report if it trained alone; the simulated time of this value; and the
        seconds that sharing its workers has cost so far."""
        self.speed = 1.0
        """Current speed, relative to that of a trial alone."""
        self.due = 0
        """Number of the event for the trial's next report."""
        self.last_result: Result = {}

    def step_s(self) -> float:
        """Return the seconds from the trial's last report to its next one, if it trains alone."""
        before = self.curve[self.position - 1].elapsed_s if self.position else 0.0
        return max(self.curve[self.position].elapsed_s - before, 1e-9)

    def report(self) -> Result:
        """Return the next result, in the form that the trainable of a sweep returns."""
        made, self.position = self.curve[self.position], self.position + 1
        self.last_result = {
            EVALUATIONS: self.position,
            STEPS: made.step,
            SECONDS: made.elapsed_s + self.shared_s,
            **made.metrics,
            STEP: made.step,
            "training_iteration": self.position,
            COMPLETED: self.position == len(self.curve),
        }
        return self.last_result


@dataclass
class Simulation:
    """A search on simulated workers, which may share their time among several trials."""

    search: StudySearch
    """Suggests the points; must be new."""
    scheduler: Scheduler
    """Decides which trials continue; must be new."""
    source: CurveSource
    """Returns the learning curves of trials."""
    workers: int
    """Number of trials that run at once."""
    stop: Stop = field(default_factory=Stop)
    """Stop rules, whose budgets end the search with all its trials; budgets of resources count only if ``holds`` is
    set."""
    holds: dict[str, float] = field(default_factory=dict)
    """Amounts of CPUs and GPUs that a trial holds, and its ``cost`` per hour."""
    usage: Usage = field(default_factory=Usage)
    """Time and resources used so far."""
    groups: int | None = None
    """Number of worker groups over which the trials are spread; None: each trial has one."""
    speed: Callable[[int], float] = lambda trials: 1.0
    """Speed of each trial when this many share a group, relative to a trial alone."""

    def __post_init__(self) -> None:
        self.places = Places(self.workers)
        self._groups: list[list[SimulatedTrial]] = [[] for _ in range(self.groups or self.workers)]
        self.trials: list[SimulatedTrial] = []
        """All trials, in the order of their starts."""
        self._live: dict[str, SimulatedTrial] = {}
        """Trials that have not ended, by id."""
        self._events: list[tuple[float, int, SimulatedTrial]] = []
        self._order = itertools.count(1)
        self._now, self._train_s = 0.0, 0.0
        self._reports: list[Reported] = []

    def run(self) -> Outcome:
        """Search until no trial is left, or a budget is used up."""
        ended: str | None = None
        self._fill()
        while self._events and ended is None:
            now, number, trial = heapq.heappop(self._events)
            if number != trial.due:
                continue  # its speed has changed since
            ended = self._use(now)
            if ended is None:
                self._report(trial)
                self._fill()
        for trial in self._live.values():
            trial.ended = self._now
        return Outcome(
            self._reports,
            self._now,
            self._train_s,
            {trial.number: (trial.began, trial.ended) for trial in self.trials},
            ended or self.search.ended_because,
        )

    def _use(self, until: float) -> str | None:
        """Advance the time, and count the resources used until then. If a budget is used up before, stop at that time
        and return a message."""
        running = sum(trial.status == "running" for trial in self._live.values())
        cpus, gpus, cost = (running * self.holds.get(name, 0.0) for name in ("CPU", "GPU", "cost"))
        left_s, message = next_exhausted(self.stop, self.usage, Usage(1.0, cpus, gpus, cost / 3600))
        end = self._now + left_s
        passed, self._now = min(until, end) - self._now, min(until, end)
        self.usage.wall_s = self._now
        self.usage.cpu_s += passed * cpus
        self.usage.gpu_s += passed * gpus
        self.usage.cost += passed * cost / 3600
        # A budget that ends at ``until`` may, rounded, seem to end behind it.
        return message if end <= until else exhausted_budget(self.stop, self.usage)

    def _fill(self) -> None:
        """Start trials, and resume paused ones, while a worker is free and there is one to start."""
        while True:
            held = self.places.holds_new
            started = self._start()
            resumed = self._resume()
            if not started and not resumed and self.places.holds_new == held:
                return

    def _start(self) -> bool:
        if not self.places.may_begin():
            return False
        suggested = self.search.next_trial()
        self.places.is_empty = suggested is None
        if suggested is None:
            return False
        trial = SimulatedTrial(suggested.number, suggested.point, self.source.curve(suggested.point), self._now)
        self.places.begin(trial.id)
        self.trials.append(trial)
        self._live[trial.id] = trial
        self.scheduler.add(trial, self.places)
        self._continue(trial)
        return True

    def _resume(self) -> bool:
        if not isinstance(self.scheduler, PausingScheduler):
            return False
        turn = self.scheduler.next([*self._live.values()], self.places, is_over=self.search.ended_because is not None)
        for stopped in turn.stopped:
            self._end(self._live[stopped.id])
        if turn.resumed is None:
            return False
        trial = self._live[turn.resumed.id]
        trial.status = "running"
        self._continue(trial)
        return True

    def _continue(self, trial: SimulatedTrial) -> None:
        """Train a trial up to its next report, on the emptiest group if it has none."""
        trial.left_s, trial.since = trial.step_s(), self._now
        if trial.group is not None:
            self._schedule(trial)
            return
        trial.group = min(self._groups, key=len)
        self._settle(trial.group)
        trial.group.append(trial)
        self._adapt(trial.group)

    def _leave(self, trial: SimulatedTrial) -> None:
        """Remove a trial from its group's workers."""
        if (group := trial.group) is not None:
            self._settle(group)
            group.remove(trial)
            trial.group = None
            self._adapt(group)

    def _settle(self, group: list[SimulatedTrial]) -> None:
        """Count the progress of a group's trials at their speeds so far."""
        for each in group:
            passed, each.since = self._now - each.since, self._now
            each.left_s -= passed * each.speed
            each.shared_s += passed * (1 - each.speed)
            self._train_s += passed * (1 - each.speed)

    def _adapt(self, group: list[SimulatedTrial]) -> None:
        """Set the speed of a group's trials by their number."""
        for each in group:
            each.speed = self.speed(len(group))
            self._schedule(each)

    def _schedule(self, trial: SimulatedTrial) -> None:
        trial.due = next(self._order)
        heapq.heappush(self._events, (self._now + max(trial.left_s, 0.0) / trial.speed, trial.due, trial))

    def _report(self, trial: SimulatedTrial) -> None:
        self._settle([trial])
        self._train_s += trial.step_s()
        result = trial.report()
        metrics = dict(trial.curve[trial.position - 1].metrics)
        self._reports.append(Reported(self._now, trial.number, result[STEP], metrics))
        if result[COMPLETED]:
            self._end(trial)
            return
        self.search.report(trial.number, result)
        verdict = self.scheduler.report(trial, result, self.places)
        if verdict is Verdict.STOP:
            self._end(trial)
        elif verdict is Verdict.PAUSE:
            trial.status, trial.ended = "paused", self._now
            self._leave(trial)
            self.places.pause(trial.id)
        else:
            self._continue(trial)

    def _end(self, trial: SimulatedTrial) -> None:
        if trial.status == "paused":
            self.scheduler.leave(trial, self.places)
            self.search.end(trial.number)
        else:
            self.scheduler.complete(trial, trial.last_result, self.places)
            self.search.end(trial.number, trial.last_result)
            trial.ended = self._now
        self._leave(trial)
        trial.status = "ended"
        self.places.end(trial.id)
        del self._live[trial.id]
