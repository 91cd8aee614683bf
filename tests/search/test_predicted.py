"""The sampler that learns from predicted values: what it shows to its model, where early values tell and where not."""

from __future__ import annotations

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from sweeps.search import PredictedSampler

RUNGS = (1, 3, 9)


def study_of(curves: list[list[float]]) -> optuna.Study:
    """A study whose trials reported at the first rungs, and were stopped if they did not reach the last."""
    study = optuna.create_study()
    for curve in curves:
        values = dict(zip(RUNGS, curve, strict=False))
        ended = TrialState.COMPLETE if len(curve) == len(RUNGS) else TrialState.PRUNED
        study.add_trial(optuna.create_trial(state=ended, value=min(curve), intermediate_values=values))
    return study


def halved(first: np.ndarray, second: np.ndarray, third: np.ndarray) -> list[list[float]]:
    """Curves of trials of which the best third at each rung went on."""
    curves = []
    of_first = np.quantile(first, 1 / 3)
    of_second = np.quantile(second[first <= of_first], 1 / 3)
    for values in zip(first, second, third, strict=True):
        reached = 1 if values[0] > of_first else 2 if values[1] > of_second else 3
        curves.append([float(each) for each in values[:reached]])
    return curves


def shown(curves: list[list[float]], enough: int = 5, seed: int = 0) -> tuple[PredictedSampler, dict[int, float]]:
    sampler = PredictedSampler(optuna.samplers.RandomSampler(), enough, seed)
    trials = sampler.trials(study_of(curves))
    return sampler, {trial.number: trial.values[0] for trial in trials if trial.values}


def test_where_early_values_tell_the_end_stopped_trials_are_shown_with_their_predicted_values() -> None:
    random = np.random.default_rng(0)
    end = random.normal(size=90)
    curves = halved(end + 2, end + 1, end)
    sampler, values = shown(curves)
    assert sampler.trust[1] > 0.75
    assert len(values) > 65
    predicted = np.array([values[number] for number in values])
    assert np.corrcoef(predicted, end[list(values)])[0, 1] > 0.9


def test_where_early_values_tell_nothing_only_trials_at_the_highest_rung_are_shown() -> None:
    random = np.random.default_rng(1)
    curves = halved(random.normal(size=90), random.normal(size=90), random.normal(size=90))
    sampler, values = shown(curves)
    at_the_end = {number for number, curve in enumerate(curves) if len(curve) == len(RUNGS)}
    assert sampler.trust[1] < 0.1
    assert at_the_end <= set(values)
    assert len(values) < len(at_the_end) + 15


def test_that_only_the_best_went_on_does_not_lower_the_trust() -> None:
    """Among the trials that went on the early values differ little, so their correlation with later ones is small."""
    random = np.random.default_rng(2)
    first = random.normal(size=300)
    second = first + 0.5 * random.normal(size=300)
    curves = [
        [float(a)] if a > np.quantile(first, 1 / 3) else [float(a), float(b)]
        for a, b in zip(first, second, strict=True)
    ]
    went_on = np.array([curve for curve in curves if len(curve) == 2])
    assert np.corrcoef(went_on.T)[0, 1] ** 2 < 0.6
    sampler, _ = shown(curves)
    assert sampler.trust[1] == pytest.approx(0.8, abs=0.12)


def test_one_diverged_trial_does_not_decide_what_early_values_tell() -> None:
    random = np.random.default_rng(3)
    end = random.normal(size=90)
    curves = [*halved(end + 2, end + 1, end), [1e9, 5.0, 4.0]]
    assert shown(curves)[0].trust[1] > 0.8


def test_with_few_trials_and_without_reports_the_study_is_shown_as_it_is() -> None:
    few = study_of([[0.5, 0.4, 0.3], [0.7]])
    sampler = PredictedSampler(optuna.samplers.RandomSampler(), 5, 0)
    assert [trial.number for trial in sampler.trials(few)] == [0, 1]
    assert sampler.trust == {}
    several = optuna.create_study(directions=["minimize", "maximize"])
    several.tell(several.ask(), (1.0, 2.0))
    assert len(sampler.trials(several)) == 1


def test_a_trial_that_waits_or_trains_counts_as_running_until_its_values_tell_its_end() -> None:
    random = np.random.default_rng(4)
    study = study_of(halved(random.normal(size=60), random.normal(size=60), random.normal(size=60)))
    running = study.ask()
    running.report(0.1, 1)
    failed = study.ask()
    failed.report(0.1, 1)
    study.tell(failed, state=TrialState.FAIL)
    trials = PredictedSampler(optuna.samplers.RandomSampler(), 5, 0).trials(study)
    states = {trial.number: trial.state for trial in trials}
    assert states[running.number] is TrialState.RUNNING
    assert failed.number not in states
    assert study.get_trials()[running.number].state is TrialState.RUNNING
