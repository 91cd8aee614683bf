"""Ray's BOHB: ``TuneBOHB`` (of hpbandster) with ``HyperBandForBOHB``, as Tune's controller calls them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from search_problems import METRIC

from searched.axes import to_point
from searched.configuration_space import configuration_space
from searched.peer import ETA, Decision, Job, rung_progress, top_rung
from sweeps.space.space import Space

PROGRESS = "epoch"


class _Trial:
    """A trial as the scheduler sees it."""

    is_saving = False

    def __init__(self, number: int, point: dict[str, Any]):
        from ray.tune.experiment import Trial

        self.trial_id, self.number, self.point = str(number), number, point
        self.status = Trial.RUNNING


class RayBohb:
    """Searcher, scheduler, and what they ask of Tune's controller."""

    def __init__(self, space: Space, seed: int, longest: int):
        from ray.tune.schedulers import HyperBandForBOHB
        from ray.tune.search.bohb import TuneBOHB

        np.random.seed(seed)  # noqa: NPY002 - hpbandster draws from the global generator
        self._space, self._longest = space, longest
        self._searcher = TuneBOHB(configuration_space(space, seed), metric=METRIC, mode="min", seed=seed)
        self._scheduler = HyperBandForBOHB(
            PROGRESS, METRIC, "min", max_t=top_rung(longest), reduction_factor=ETA, stop_last_trials=True
        )
        self._trials: list[_Trial] = []
        self.search_alg = SimpleNamespace(searcher=self._searcher)

    def next(self) -> Job | None:
        from ray.tune.experiment import Trial

        controller: Any = self
        resumed: Any = self._scheduler.choose_trial_to_run(controller)
        if resumed is not None:
            resumed.status = Trial.RUNNING
            return Job(resumed.number, resumed.point)
        number = len(self._trials)
        raw = self._searcher.suggest(str(number))
        if raw is None:
            return None
        trial: Any = _Trial(number, to_point(self._space, raw))
        self._trials.append(trial)
        self._scheduler.on_trial_add(controller, trial)
        return Job(number, trial.point)

    def report(self, number: int, progress: int, loss: float) -> Decision:
        from ray.tune.experiment import Trial

        controller: Any = self
        trial: Any = self._trials[number]
        result = {PROGRESS: rung_progress(progress, self._longest), METRIC: loss}
        decision = self._scheduler.on_trial_result(controller, trial, result)
        if decision != "STOP":
            self._searcher.on_trial_result(trial.trial_id, result)
        if decision == "PAUSE":
            trial.status = Trial.PAUSED
            return "pause"
        if decision == "STOP" or progress >= self._longest:
            self._scheduler.on_trial_complete(controller, trial, result)
            self._searcher.on_trial_complete(trial.trial_id, result)
            trial.status = Trial.TERMINATED
            return "stop"
        return "continue"

    # --- asked by the scheduler -----------------------------------------------------------------------------------

    def get_trials(self) -> list[_Trial]:
        """All trials."""
        return self._trials

    def stop_trial(self, trial: Any) -> None:
        """End a paused trial."""
        from ray.tune.experiment import Trial

        controller: Any = self
        self._scheduler.on_trial_remove(controller, trial)
        self._searcher.on_trial_complete(trial.trial_id)
        trial.status = Trial.TERMINATED
