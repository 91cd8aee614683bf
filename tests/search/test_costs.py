"""Costs of trainings: their model, and how the sampler and the scheduler consider them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState
from spaces import space_of

from sweeps.constants import COST_MODEL, DECISION_PREFIX, NUMBER
from sweeps.search import CurveSampler
from sweeps.search.curve_model.cost import FEWEST, CostModel, fit_costs
from sweeps.search.curve_model.observations import Array
from sweeps.search.schedulers.costs import Costs
from sweeps.search.schedulers.decisions import seconds_for_a_unit

GROUPS = [0, 1]
SPACE = space_of({"x": {"type": "float", "low": 0, "high": 1}})


def seconds_of(vectors: Array, seed: int = 0) -> Array:
    """Seconds that the first parameter raises from 1 to 16, with a tenth of noise."""
    noise = np.random.default_rng(seed).normal(size=len(vectors))
    return np.asarray(16 ** vectors[:, 0] * np.exp(0.1 * noise))


def test_the_model_tells_which_configurations_are_expensive() -> None:
    vectors = np.random.default_rng(0).random((300, 2))
    seconds = seconds_of(vectors)
    model = CostModel(fit_costs(GROUPS, vectors, seconds), GROUPS, vectors, seconds)
    cheap, expensive = model.of(np.array([[0.05, 0.5], [0.95, 0.5]]))
    assert expensive / cheap == pytest.approx(16 ** (0.9 / 2), rel=0.1)
    assert model.of_known(np.array([np.exp(np.log(seconds).mean())])) == pytest.approx([1.0])


def test_costs_count_when_they_are_known_of_enough_trials() -> None:
    vectors = np.random.default_rng(1).random((FEWEST, 2))
    costs = Costs(GROUPS, {str(row): vector for row, vector in enumerate(vectors)})
    new = np.array([[0.0, 0.5], [1.0, 0.5]])
    for row, seconds in enumerate(seconds_of(vectors)):
        before = costs.divisors([str(row)], new)
        assert all((each == 1).all() for each in before)
        costs.add(str(row), seconds)
    of_trials, of_new = costs.divisors([*map(str, range(FEWEST)), "without"], new)
    assert list(np.argsort(of_trials[:-1])) == list(np.argsort([*costs.seconds.values()]))
    assert of_trials[-1] == 1
    assert of_new[0] < 1 < of_new[1]


def test_a_scheduler_that_starts_again_has_the_same_costs() -> None:
    vectors = np.random.default_rng(2).random((60, 2))
    named = {str(row): vector for row, vector in enumerate(vectors)}
    whole, again = Costs(GROUPS, named), Costs(GROUPS, named)
    for row, seconds in enumerate(seconds_of(vectors)):
        whole.add(str(row // 2), seconds)
        whole.divisors([], vectors[:1])
        again.add(str(row // 2), seconds)
    for one, other in zip(whole.divisors(["3"], vectors), again.divisors(["3"], vectors), strict=True):
        assert np.array_equal(one, other)


def test_the_usual_cost_is_the_median_of_each_trials_last_measurement() -> None:
    costs = Costs(GROUPS, {})
    assert math.isnan(costs.usual_seconds)
    for trial, seconds in (("0", 9.0), ("1", 2.0), ("0", 4.0)):
        costs.add(trial, seconds)
    assert costs.usual_seconds == 3
    costs.add("2", 2.5)
    assert costs.usual_seconds == 2.5


def study_with(expensive_side: bool | None) -> optuna.Study:
    """Trials of a loss with two equal optima, at 0.2 and 0.8; the upper or the lower half costs nine times as much."""
    sampler = CurveSampler(optuna.samplers.RandomSampler(seed=0), SPACE, startup=5, seed=0)
    study = optuna.create_study(sampler=sampler)
    for number, x in enumerate(np.random.default_rng(3).random(24)):
        loss = (abs(x - 0.5) - 0.3) ** 2
        decision = {"event": "done", "rung": 1.0, "value": -loss}
        if expensive_side is not None:
            decision |= {"seconds": 9.0 if (x > 0.5) == expensive_side else 1.0, "left_s": 100.0}
        study.add_trial(
            optuna.create_trial(
                state=TrialState.COMPLETE,
                value=loss,
                params={"x": x},
                distributions={"x": optuna.distributions.FloatDistribution(0, 1)},
                intermediate_values={1: loss},
                user_attrs={NUMBER: number, f"{DECISION_PREFIX}{number}": decision},
            )
        )
    return study


def suggested(study: optuna.Study) -> list[float]:
    points: list[float] = []
    while len(points) < 12:
        trial = study.ask()
        points.append(trial.suggest_float("x", 0, 1))
        loss = (abs(points[-1] - 0.5) - 0.3) ** 2
        trial.report(loss, 1)
        study.tell(trial, loss)
    return points


def test_of_equally_good_points_the_cheap_ones_are_suggested() -> None:
    for expensive in (True, False):
        study = study_with(expensive)
        cheap = np.mean([(x > 0.5) != expensive for x in suggested(study)])
        assert cheap > 0.7
        assert any(COST_MODEL in trial.system_attrs for trial in study.get_trials())
    study = study_with(None)
    assert 0.2 < np.mean([x > 0.5 for x in suggested(study)]) < 0.8
    assert not any(COST_MODEL in trial.system_attrs for trial in study.get_trials())


def test_the_last_decision_tells_a_trials_seconds() -> None:
    attributes: dict[str, Any] = {
        f"{DECISION_PREFIX}3": {"event": "arrived", "seconds": 2.0},
        f"{DECISION_PREFIX}11": {"event": "arrived", "seconds": 1.5},
        f"{DECISION_PREFIX}12": {"event": "dropped"},
    }
    trial = optuna.create_trial(value=0.0, user_attrs=attributes)
    assert seconds_for_a_unit(trial) == 1.5
    assert seconds_for_a_unit(optuna.create_trial(value=0.0)) is None
