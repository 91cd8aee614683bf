"""Limits on metrics under the schedulers that stop trials: a trial that breaks one is not trained on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optuna
import pytest
from spaces import sampler_of

from sweeps.config.objectives import Objectives
from sweeps.config.search import Limit
from sweeps.config.space import FloatDistribution
from sweeps.search import build_sampler
from sweeps.search.schedulers.asha import Asha
from sweeps.search.schedulers.decisions import DecisionLog
from sweeps.search.schedulers.freeze_thaw import FreezeThaw
from sweeps.search.schedulers.hyperband import Hyperband
from sweeps.search.schedulers.scheduler import Scheduler
from sweeps.search.study_search import StudySearch
from sweeps.simulate.recorded_table import Report
from sweeps.simulate.simulation import Simulation
from sweeps.space.space import Point, Space

SPACE = Space({"width": FloatDistribution(type="float", low=0, high=1)})
STEPS = (1, 3, 9, 27)
LIMITS = {"memory": Limit(max=0.6)}
OBJECTIVES = Objectives(("loss",), ("min",), LIMITS)
SCHEDULERS: dict[str, Callable[[DecisionLog], Scheduler]] = {
    "asha": lambda decisions: Asha("steps", 1, 3, 1, 0, OBJECTIVES, decisions),
    "hyperband": lambda decisions: Hyperband("steps", 1, 27, 3, OBJECTIVES, decisions),
    "freeze_thaw": lambda decisions: FreezeThaw("steps", 1, 27, 3, SPACE, OBJECTIVES, decisions),
}


class Memory:
    """Trainings that are the better the wider the model is, which needs memory; told from the second report on."""

    def curve(self, point: Point) -> list[Report]:
        known: dict[int, dict[str, Any]] = {step: {"memory": point["width"]} if step > 1 else {} for step in STEPS}
        return [Report(step, float(step), {"loss": 2 - point["width"] + 1 / step, **known[step]}) for step in STEPS]


@pytest.mark.parametrize(
    ("sampler", "kind", "seed"),
    [
        pytest.param(*case, seed, marks=[pytest.mark.slow] if seed else [])
        for case in (("tpe", "asha"), ("tpe", "hyperband"), ("curves", "freeze_thaw"))
        for seed in range(3)
    ],
)
def test_a_trial_that_breaks_a_limit_is_stopped_and_the_best_of_the_others_is_finished(
    sampler: str, kind: str, seed: int
) -> None:
    made = build_sampler(sampler_of(sampler), seed, SPACE)
    searcher = StudySearch(SPACE, metric="loss", mode="min", sampler=made, num_trials=60, limits=LIMITS)
    simulation = Simulation(searcher, SCHEDULERS[kind](DecisionLog(searcher.study)), Memory(), 4)
    simulation.run()
    widths = {trial.number: trial.parameters["width"] for trial in simulation.trials}
    too_wide = [trial for trial in simulation.trials if widths[trial.number] > 0.6]
    finished = [trial.number for trial in simulation.trials if trial.position == len(STEPS)]
    assert all(trial.position <= 2 for trial in too_wide)
    assert max(widths[number] for number in finished) > 0.5
    assert searcher.study.best_trial.params["width"] <= 0.6
    assert_stopped_by_recorded_decisions(searcher.study, kind, {f"{trial.number:04}" for trial in too_wide})


def assert_stopped_by_recorded_decisions(study: optuna.Study, kind: str, too_wide: set[str]) -> None:
    """A scheduler after a restart makes the same decisions again, and tells which limit was broken."""
    again = SCHEDULERS[kind](DecisionLog())
    told = set()
    for number, event in DecisionLog(study).events:
        if "memory" in str(again.explain(number, event)):
            assert again.repeat(number, event)
            told.add(number)
        else:
            again.repeat(number, event)
    assert told
    assert told <= too_wide
    SCHEDULERS[kind](DecisionLog(study))
