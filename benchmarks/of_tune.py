"""Searchers and schedulers of Ray Tune, as ``Simulation`` asks them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from sweeps.config.objectives import Objectives
from sweeps.search.schedulers.places import Places
from sweeps.search.schedulers.scheduler import Result, ScheduledTrial, Scheduler, Verdict
from sweeps.search.study_search import Suggested


class SearchOfTune:
    """A searcher of Tune. Its points are those of ``Space.sample``, not Optuna's parameters: there an ordinal value
    is its index."""

    ended_because = None

    def __init__(self, searcher: Any, points: Sequence[dict[str, Any]]):
        """Ask the searcher for trials, each of which adds its point to ``points``."""
        self._searcher, self._points, self._count = searcher, points, 0

    def next_trial(self) -> Suggested | None:
        if self._searcher.suggest(str(self._count)) is None:
            return None
        self._count += 1
        return Suggested(self._count - 1, dict(self._points[-1]))

    def report(self, number: int, result: Result) -> None:
        self._searcher.on_trial_result(str(number), dict(result))

    def end(self, number: int, result: Result | None = None) -> None:
        self._searcher.on_trial_complete(str(number), None if result is None else dict(result))


class SchedulerOfTune(Scheduler):
    """A scheduler of Tune that pauses no trials."""

    def __init__(self, scheduler: Any, objectives: Objectives):
        super().__init__(objectives)
        self._scheduler = scheduler
        scheduler.set_search_properties(objectives.metrics[0], objectives.modes[0])

    def add(self, trial: ScheduledTrial, places: Places) -> bool:
        self._scheduler.on_trial_add(None, SimpleNamespace(trial_id=trial.id))
        return False

    def report(self, trial: ScheduledTrial, result: Result, places: Places) -> Verdict:
        return Verdict(self._scheduler.on_trial_result(None, SimpleNamespace(trial_id=trial.id), dict(result)))

    def complete(self, trial: ScheduledTrial, result: Result, places: Places) -> None:
        self._scheduler.on_trial_complete(None, SimpleNamespace(trial_id=trial.id), dict(result))
