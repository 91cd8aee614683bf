"""Stop rules: each ends the search at the exact trial."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from spaces import space_of

from sweeps.config.objectives import Objectives
from sweeps.config.search import Cost, Limit, Plateau, Stop
from sweeps.constants import NUMBER, STEP
from sweeps.search.budget import Usage, exhausted_budget
from sweeps.search.curve_model import fit as curve_fit
from sweeps.search.curve_model.hyperparameters import Hyperparameters
from sweeps.search.curve_model.observations import Observations
from sweeps.search.expected_improvement import MIN_FINISHED, ExpectedImprovement
from sweeps.search.reported_values import ReportedValues
from sweeps.search.stop_rules import stop_reason

FINISHED, PRUNED, FAILED = (
    optuna.trial.TrialState.COMPLETE,
    optuna.trial.TrialState.PRUNED,
    optuna.trial.TrialState.FAIL,
)


def study_of(*trials: tuple[optuna.trial.TrialState | None, list[float]], mode: str = "min") -> optuna.Study:
    """Study of trials, each given by its state (None: running) and its reported values."""
    study = optuna.create_study(direction=f"{mode}imize")
    for number, (state, values) in enumerate(trials):
        trial = study.ask()
        trial.set_user_attr(NUMBER, number)
        for step, value in enumerate(values):
            trial.report(value, step)
        if state is not None:
            best = (min if mode == "min" else max)(values) if state == FINISHED else None
            study.tell(trial, best, state)
    return study


@pytest.mark.parametrize(
    ("stop", "usage", "is_spent"),
    [
        (Stop(), Usage(1e9, 1e9, 1e9), False),
        (Stop(wall_hours=2), Usage(wall_s=7199), False),
        (Stop(wall_hours=2), Usage(wall_s=7200), True),
        (Stop(gpu_hours=1), Usage(cpu_s=1e9, gpu_s=3599), False),
        (Stop(gpu_hours=1), Usage(gpu_s=3600), True),
        (Stop(cost=Cost(limit=5, per_gpu_hour=2)), Usage(gpu_s=1e9, cost=4.99), False),
        (Stop(cost=Cost(limit=5, per_gpu_hour=2)), Usage(cost=5.0), True),
    ],
)
def test_a_budget_is_spent_when_all_of_it_is_used(stop: Stop, usage: Usage, is_spent: bool) -> None:
    reason = exhausted_budget(stop, usage)
    assert (reason is not None) == is_spent
    assert not is_spent or "is used up" in str(reason)


@pytest.mark.parametrize(
    ("mode", "values", "is_reached"),
    [("min", [0.31], False), ("min", [0.30], True), ("max", [0.29], False), ("max", [0.30, 0.1], True)],
)
@pytest.mark.parametrize("state", [FINISHED, PRUNED, None])
def test_a_target_is_reached_by_any_report(mode: Any, values: list[float], is_reached: bool, state: Any) -> None:
    study = study_of((FINISHED, [0.9 if mode == "min" else 0.0]), (state, values), mode=mode)
    assert (stop_reason(Stop(target=0.3), mode, study) is not None) == is_reached


def test_where_the_last_report_counts_neither_an_earlier_one_nor_one_of_a_running_trial_reaches_a_target() -> None:
    """As with ``task.folds``, whose first fold may be a lucky one."""
    stop, plateau = Stop(target=0.3), Stop(plateau=Plateau(trials=1))
    for state, values, is_reached in (
        (None, [0.3], False),
        (PRUNED, [0.2, 0.5], False),
        (PRUNED, [0.5, 0.3], True),
        (FINISHED, [0.3], True),
    ):
        study = study_of((FINISHED, [0.9]), (state, values))
        assert (stop_reason(stop, "min", study, last_counts=True) is not None) == is_reached, (state, values)
    worse = study_of((FINISHED, [0.4]), (PRUNED, [0.2, 0.5]))
    assert stop_reason(plateau, "min", worse, last_counts=True) is not None


def test_a_failed_trial_and_one_beyond_a_limit_reach_no_target() -> None:
    study = study_of((FAILED, [0.1]))
    assert stop_reason(Stop(target=0.3), "min", study) is None
    trial = study.ask()
    trial.set_user_attr(NUMBER, 1)
    study._storage.set_trial_system_attr(trial._trial_id, "constraints", [0.5])
    study.tell(trial, 0.1)
    assert stop_reason(Stop(target=0.3), "min", study) is None


def test_a_running_trial_that_has_violated_a_limit_reaches_no_target() -> None:
    study = study_of((None, [0.1]))
    trial = study.ask()
    trial.set_user_attr(NUMBER, 1)
    reported = ReportedValues(trial, Objectives(("loss",), ("min",), {"memory": Limit(max=1)}))
    reported.add({"loss": 0.1, "memory": 2.0, STEP: 1})
    stop = Stop(target=0.05)
    assert stop_reason(stop, "min", study) is None
    reported.add({"loss": 0.01, "memory": 0.5, STEP: 2})
    assert stop_reason(stop, "min", study) is None


def test_a_plateau_is_counted_from_the_last_improvement() -> None:
    plateau = Stop(plateau=Plateau(trials=3))
    flat = [(FINISHED, [1.0]), (PRUNED, [1.5]), (FAILED, [])]
    assert stop_reason(plateau, "min", study_of(*flat)) is None
    assert stop_reason(plateau, "min", study_of(*flat, (None, [0.5]))) is None  # what runs has not ended
    assert stop_reason(plateau, "min", study_of(*flat, (FINISHED, [1.0]))) is not None
    assert stop_reason(plateau, "min", study_of(*flat, (PRUNED, [0.9]))) is None
    assert stop_reason(plateau, "min", study_of(*flat, (FINISHED, [0.9]), *flat[1:])) is None
    assert stop_reason(plateau, "min", study_of(*flat, (FINISHED, [0.9]), *flat)) is not None
    assert stop_reason(plateau, "max", study_of(*flat, (FINISHED, [1.6]), mode="max")) is None


def test_a_change_below_the_least_one_that_counts_is_no_improvement() -> None:
    creeping = [(FINISHED, [1.0 - 0.01 * index]) for index in range(4)]
    assert stop_reason(Stop(plateau=Plateau(trials=3)), "min", study_of(*creeping)) is None
    assert stop_reason(Stop(plateau=Plateau(trials=3, min_change=0.1)), "min", study_of(*creeping)) is not None


def test_before_the_first_value_nothing_can_stand_still() -> None:
    assert stop_reason(Stop(plateau=Plateau(trials=1)), "min", study_of((FAILED, []), (FAILED, []))) is None


def test_points_that_were_turned_down_do_not_count() -> None:
    study = study_of((FINISHED, [1.0]), (FINISHED, [1.0]))
    for _ in range(5):
        study.tell(study.ask(), state=FAILED)
    assert stop_reason(Stop(plateau=Plateau(trials=2)), "min", study) is None


SPACE = space_of(
    {
        "x": {"type": "float", "low": -2.0, "high": 2.0},
        "y": {"type": "float", "low": 1e-3, "high": 1.0, "log": True},
        "kind": {"type": "categorical", "choices": ["a", "b"]},
        "z": {"type": "int", "low": 0, "high": 3, "when": {"kind": "b"}},
    }
)


def tried(function: Callable[[dict[str, Any]], float], count: int, mode: str = "min") -> optuna.Study:
    study = optuna.create_study(direction=f"{mode}imize", sampler=optuna.samplers.TPESampler(seed=0))
    for _ in range(count):
        try_next(study, function)
    return study


def try_next(study: optuna.Study, function: Callable[[dict[str, Any]], float]) -> None:
    trial = study.ask()
    trial.set_user_attr(NUMBER, trial.number)
    study.tell(trial, function(SPACE.sample(trial, lambda path: None)))


def bowl(point: dict[str, Any]) -> float:
    return float(point["x"] ** 2 + (math.log10(point["y"]) + 1) ** 2 + (point["kind"] == "b") * (1 + point.get("z", 0)))


def test_the_expected_improvement_falls_as_the_optimum_is_found() -> None:
    study = tried(bowl, 12)
    early = ExpectedImprovement(SPACE, lambda path: None, "min").largest(study)
    while len(study.trials) < 80:
        try_next(study, bowl)
    late = ExpectedImprovement(SPACE, lambda path: None, "min").largest(study)
    assert early is not None
    assert late is not None
    assert late < early
    assert late < 10 * study.best_value + 0.05  # the optimum is 0


def test_the_expected_improvement_is_the_same_for_the_mirrored_objective() -> None:
    low = ExpectedImprovement(SPACE, lambda path: None, "min").largest(tried(bowl, 20))
    high = ExpectedImprovement(SPACE, lambda path: None, "max").largest(tried(lambda p: -bowl(p), 20, "max"))
    assert low == pytest.approx(high)


def test_improvement_is_over_the_best_trial_within_all_limits() -> None:
    space = space_of({"x": {"type": "float", "low": 0.0, "high": 1.0}})

    def gain(beyond: float, excess: float) -> float | None:
        study = optuna.create_study()
        for number, x in enumerate([*(index / 50 for index in range(MIN_FINISHED)), 1.0]):
            study.enqueue_trial({"x": x})
            trial = study.ask()
            space.sample(trial, lambda path: None)
            trial.set_user_attr(NUMBER, number)
            trial.set_constraint("memory <= 1", excess if x == 1 else 0.0)
            study.tell(trial, beyond if x == 1 else 1 - x)
        return ExpectedImprovement(space, lambda path: None, "min").largest(study)

    assert gain(0.0, excess=0.5) == gain(1.0, excess=0.0)  # it counts as the worst, as for the sampler curves
    assert gain(0.0, excess=0.5) != gain(0.0, excess=0.0)


def test_with_few_trials_nothing_is_said_of_further_ones() -> None:
    assert ExpectedImprovement(SPACE, lambda path: None, "min").largest(tried(bowl, MIN_FINISHED - 1)) is None


def test_noise_alone_promises_little() -> None:
    chance = random.Random(0)
    gain = ExpectedImprovement(SPACE, lambda path: None, "min").largest(tried(lambda p: chance.gauss(0, 1), 60))
    assert gain is not None
    assert gain < 0.5


def test_a_search_that_starts_again_expects_the_same_improvement() -> None:
    study, whole = tried(bowl, 20), ExpectedImprovement(SPACE, lambda path: None, "min")
    for _ in range(10):
        assert whole.largest(study) == ExpectedImprovement(SPACE, lambda path: None, "min").largest(study)
        try_next(study, bowl)


def test_the_process_is_fitted_again_when_a_fifth_more_trials_have_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted_to: list[int] = []
    fit_once = curve_fit.fit

    def fit(data: Observations, *arguments: Any, **named: Any) -> Hyperparameters:
        fitted_to.append(len(data))
        return fit_once(data, *arguments, **named)

    monkeypatch.setattr(curve_fit, "fit", fit)
    study, improvement = tried(bowl, 19), ExpectedImprovement(SPACE, lambda path: None, "min")
    for _ in range(11):
        improvement.largest(study)
        try_next(study, bowl)
    assert fitted_to == [16, 20, 25]
