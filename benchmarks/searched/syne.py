"""Syne Tune's ASHA, DyHPO and MOBSTER, with their defaults."""

from __future__ import annotations

import datetime
from typing import Any, Literal

from search_problems import METRIC

from searched.axes import axes, to_point
from searched.peer import ETA, Decision, Job
from sweeps.space.space import Space

PROGRESS = "epoch"


class SyneTune:
    """A scheduler of Syne Tune. Conditions are left out: it has none."""

    def __init__(self, scheduler: Literal["ASHA", "DyHPO", "MOBSTER"], space: Space, seed: int, longest: int):
        from syne_tune import config_space
        from syne_tune.optimizer import baselines

        made: dict[str, Any] = {}
        for axis in axes(space):
            if axis.kind == "choice":
                made[axis.path] = config_space.choice(list(range(len(axis.values))))
            elif axis.kind == "int":
                draw = config_space.lograndint if axis.log else config_space.randint
                made[axis.path] = draw(int(axis.low), int(axis.high))
            else:
                made[axis.path] = (config_space.loguniform if axis.log else config_space.uniform)(axis.low, axis.high)
        options: dict[str, Any] = {"resource_attr": PROGRESS, "max_t": longest, "grace_period": 1, "random_seed": seed}
        if scheduler != "DyHPO":
            options["reduction_factor"] = ETA  # the rungs of DyHPO are at equal distances
        self._scheduler = getattr(baselines, scheduler)(made, metric=METRIC, mode="min", **options)
        self._space, self._longest = space, longest
        self._trials: list[Any] = []

    def next(self) -> Job | None:
        from syne_tune.backend.trial_status import Trial

        number = len(self._trials)
        suggestion = self._scheduler.suggest(trial_id=number)
        if suggestion is None:
            return None
        if not suggestion.spawn_new_trial_id:
            number = int(suggestion.checkpoint_trial_id)
            return Job(number, to_point(self._space, self._trials[number].config))
        self._trials.append(Trial(number, suggestion.config, datetime.datetime.now(datetime.UTC)))
        self._scheduler.on_trial_add(self._trials[number])
        return Job(number, to_point(self._space, suggestion.config))

    def report(self, number: int, progress: int, loss: float) -> Decision:
        result = {METRIC: loss, PROGRESS: progress}
        decision = self._scheduler.on_trial_result(self._trials[number], result)
        if progress >= self._longest:
            self._scheduler.on_trial_complete(self._trials[number], result)
            return "stop"
        if decision == "CONTINUE":
            return "continue"
        self._scheduler.on_trial_remove(self._trials[number])
        return "pause" if decision == "PAUSE" else "stop"
