"""BOHB: a sampler learns from the values at one rung while trials are stopped early."""

from __future__ import annotations

import heapq
from pathlib import Path

import numpy as np
import optuna
import pytest
from hartmann import Hartmann
from optuna.samplers import BaseSampler
from optuna.storages import JournalStorage
from optuna.trial import TrialState

from sweeps.compat.optuna import set_note
from sweeps.constants import COMPLETED, STEP
from sweeps.search import OptunaSearcher
from sweeps.search.samplers.bohb import RungSampler
from sweeps.search.study_file import StudyFile


class Rungs:
    """A study whose trials report at chosen steps."""

    def __init__(self) -> None:
        self.study = optuna.create_study()

    def trial(self, values: dict[int, float], state: TrialState = TrialState.RUNNING) -> None:
        trial = self.study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
        for step, value in values.items():
            trial.report(value, step)
        if state.is_finished():
            self.study.tell(trial, min(values.values()) if state is TrialState.COMPLETE else None, state)

    def shown(self, sampler: RungSampler) -> dict[int, float | None]:
        return {trial.number: trial.value for trial in sampler.trials(self.study)}


def test_the_highest_rung_that_enough_have_reached_is_learned_from() -> None:
    rungs, sampler = Rungs(), RungSampler(optuna.samplers.RandomSampler(), enough=3)
    rungs.trial({1: 0.5, 3: 0.4, 9: 0.3}, TrialState.COMPLETE)
    rungs.trial({1: 0.7}, TrialState.PRUNED)
    assert rungs.shown(sampler) == {0: 0.3, 1: 0.7}  # too few for any rung: as it is
    rungs.trial({1: 0.6, 3: 0.45}, TrialState.PRUNED)
    assert rungs.shown(sampler) == {0: 0.5, 1: 0.7, 2: 0.6}
    rungs.trial({1: 0.55, 3: 0.35})  # waits there, or runs on
    rungs.trial({1: 0.9})
    rungs.trial({1: 0.1, 2: 0.1}, TrialState.FAIL)
    assert rungs.shown(sampler) == {0: 0.4, 2: 0.45, 3: 0.35, 4: None}  # the last one is still on its way
    assert [trial.state for trial in rungs.study.trials][3] is TrialState.RUNNING  # the study itself is untouched


def test_trials_that_report_at_steps_of_their_own_are_compared_at_the_last_that_enough_have_reached() -> None:
    rungs, sampler = Rungs(), RungSampler(optuna.samplers.RandomSampler(), enough=2)
    rungs.trial({10: 0.5, 20: 0.4}, TrialState.COMPLETE)
    rungs.trial({8: 0.6, 16: 0.3, 24: 0.2}, TrialState.COMPLETE)
    rungs.trial({7: 0.6}, TrialState.PRUNED)
    assert rungs.shown(sampler) == {0: 0.4, 1: 0.3}


def test_a_trial_whose_first_values_come_after_the_rung_is_not_compared_there() -> None:
    """Its first reports may have been NaN, or it evaluates more rarely than others."""
    rungs, sampler = Rungs(), RungSampler(optuna.samplers.RandomSampler(), enough=2)
    rungs.trial({1: 0.5}, TrialState.PRUNED)
    rungs.trial({1: 0.6}, TrialState.PRUNED)
    rungs.trial({2: 0.1}, TrialState.COMPLETE)
    rungs.trial({3: 0.2})
    assert rungs.shown(sampler) == {0: 0.5, 1: 0.6, 3: None}


def test_a_trial_that_was_shown_while_it_ran_is_shown_with_the_limits_that_it_has_violated(tmp_path: Path) -> None:
    study = optuna.create_study(storage=JournalStorage(StudyFile(tmp_path / "study.log")))
    sampler, trial = RungSampler(optuna.samplers.RandomSampler(), enough=1), study.ask()
    set_note(study, study.trials[0], "note", 1)  # as TPE does
    trial.report(0.5, 1)
    assert [shown.constraints for shown in sampler.trials(study)] == [{}]
    trial.set_constraint("memory <= 1", 2.0)
    study.tell(trial, state=TrialState.PRUNED)
    assert [shown.constraints for shown in sampler.trials(study)] == [{"memory <= 1": 2.0}]


def tpe(seed: int) -> BaseSampler:
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=8)


def test_of_ten_thousand_trials_each_is_copied_once_for_its_rung() -> None:
    rungs, sampler = Rungs(), RungSampler(optuna.samplers.RandomSampler(), enough=8)
    trials = []
    for number in range(10_000):
        values = {1: 0.5, 3: 0.4, 9: 0.3} if number % 9 == 0 else {1: 0.5}
        state = TrialState.COMPLETE if number % 9 == 0 else TrialState.PRUNED
        trials.append(optuna.create_trial(value=values[max(values)], state=state, intermediate_values=values))
    rungs.study.add_trials(trials)
    first, second = sampler.trials(rungs.study), sampler.trials(rungs.study)
    assert len(first) == 1112
    assert all(one is same for one, same in zip(first, second, strict=True))


def search(function: Hartmann, sampler: BaseSampler, seed: int, halving: bool, budget: int) -> float:
    """True regret of the best among the trials that trained longest, with 4 parallel workers and ASHA, within a sum of
    the fidelities 1, 3, 9, ... 100 of all trials. With ``halving``, the worse two thirds of a rung are stopped."""
    searcher = OptunaSearcher(function.space, metric="loss", mode="min", sampler=sampler)
    random = np.random.default_rng(seed)
    steps = [1, 3, 9, 27, 81, 100]
    rungs: dict[int, list[float]] = {step: [] for step in steps[:-1]}
    furthest: dict[str, tuple[int, float, float]] = {}
    running: list[tuple[float, str, int]] = []
    points = {}

    def start(now: float) -> None:
        name = str(len(points))
        points[name] = searcher.suggest(name)
        heapq.heappush(running, (now + steps[0], name, 0))

    for _ in range(4):
        start(0)
    while True:
        now, name, index = heapq.heappop(running)
        if now * 4 > budget:
            most = max(step for step, _, _ in furthest.values())
            return min((value, true) for step, value, true in furthest.values() if step == most)[1]
        step, point = steps[index], points[name]
        assert point is not None
        value = function.regret(point, step, random)
        furthest[name] = step, value, function.regret(point)
        stopped = False
        if step in rungs and halving:
            rungs[step].append(value)
            stopped = len(rungs[step]) >= 3 and value > np.percentile(rungs[step], 100 / 3)
        result = {"loss": value, STEP: step, "training_iteration": index + 1, COMPLETED: step == steps[-1]}
        if stopped or step == steps[-1]:
            searcher.on_trial_complete(name, result)
            start(now)
        else:
            searcher.on_trial_result(name, result)
            heapq.heappush(running, (now + steps[index + 1] - step, name, index + 1))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_where_early_values_mislead_rungs_are_better_than_random_and_a_sampler_that_believes_them_is_worse() -> None:
    misleading = Hartmann(6, bias=2.5, noise=2.0)
    rungs = [search(misleading, RungSampler(tpe(seed), 8), seed, halving=True, budget=4000) for seed in range(4)]
    believing = [search(misleading, tpe(seed), seed, halving=True, budget=2000) for seed in range(4)]
    random = optuna.samplers.RandomSampler
    halved = [search(misleading, random(seed), seed, halving=True, budget=4000) for seed in range(4)]
    whole = [search(misleading, random(seed), seed, halving=False, budget=4000) for seed in range(4)]
    assert np.mean(rungs) < np.mean(halved) < np.mean(whole)
    assert np.mean(rungs) < 0.6 * np.mean(believing)
