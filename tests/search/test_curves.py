"""The sampler with a model of learning curves: what it learns from, and what it keeps away from."""

from __future__ import annotations

from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState
from spaces import space_of

from sweeps.constants import CURVE_MODELS, DECISION_PREFIX, NUMBER, REASON, REPORT_PREFIX
from sweeps.search import CurveSampler
from sweeps.search.unit_cube import UnitCube

SPACE = space_of({"x": {"type": "float", "low": 0, "high": 1}, "y": {"type": "float", "low": 0, "high": 1}})
DISTRIBUTIONS: dict[str, Any] = {name: optuna.distributions.FloatDistribution(0, 1) for name in SPACE}
RUNGS = (1, 3, 9)


def study_of(curve: Any, number: int = 40, seed: int = 0) -> optuna.Study:
    """A study of random points with these curves, of which the best third went on at each rung."""
    random = np.random.default_rng(seed)
    study = optuna.create_study(sampler=sampler())
    points = random.random((number, 2))
    values = np.array([curve(x, y, random) for x, y in points])
    reached = np.ones(number, dtype=int)
    for rung in range(2):
        there = reached == rung + 1
        reached[there & (values[:, rung] <= np.quantile(values[there, rung], 1 / 3))] += 1
    for order, ((x, y), curve_values, count) in enumerate(zip(points, values, reached, strict=True)):
        study.add_trial(
            optuna.create_trial(
                state=TrialState.COMPLETE if count == 3 else TrialState.PRUNED,
                value=float(curve_values[count - 1]),
                params={"x": x, "y": y},
                distributions=DISTRIBUTIONS,
                intermediate_values=dict(zip(RUNGS[:count], map(float, curve_values), strict=False)),
                user_attrs={NUMBER: order},
            )
        )
    return study


def sampler(seed: int = 0) -> CurveSampler:
    return CurveSampler(optuna.samplers.RandomSampler(seed=seed), SPACE, startup=5, seed=seed)


def learnt_from(study: optuna.Study) -> Any:
    """Trials that the model learns from, and their values."""
    learnt = sampler()._learnt_from(study)
    assert learnt is not None
    return learnt


def suggested(study: optuna.Study, number: int = 6) -> np.ndarray:
    """The next points, which all run at once; the few that are random are left out."""
    points = []
    while len(points) < number:
        trial = study.ask()
        points.append([trial.suggest_float(name, 0, 1) for name in SPACE])
        if study.sampler._seen[1] is None:  # type: ignore[attr-defined]
            points.pop()
    return np.array(points)


def honest(x: float, y: float, random: np.random.Generator) -> list[float]:
    """Early values tell the end: the best point is (0.7, 0.3)."""
    end = (x - 0.7) ** 2 + (y - 0.3) ** 2
    return [end + 0.2, end + 0.1, end]


def misleading(x: float, y: float, random: np.random.Generator) -> list[float]:
    """The first values are mostly chance."""
    end = (x - 0.7) ** 2 + (y - 0.3) ** 2
    return [end + 0.5 * random.normal(), end + 0.02 * random.normal(), end]


@pytest.mark.parametrize("curve", [honest, misleading])
def test_points_are_suggested_where_the_end_is_good(curve: Any) -> None:
    points = suggested(study_of(curve), 4)
    assert np.median(np.abs(points - [0.7, 0.3]).max(axis=1)) < 0.2


def test_suggestions_that_run_at_once_differ() -> None:
    points = suggested(study_of(honest), 8)
    distances = np.abs(points[:, None] - points[None]).max(axis=2)[~np.eye(8, dtype=bool)]
    assert distances.min() > 1e-4


def test_a_paused_trial_tells_its_values_and_does_not_keep_others_away() -> None:
    study = study_of(honest)
    paused = study.ask(DISTRIBUTIONS)
    paused.report(0.2, 1)
    paused.set_user_attr(f"{DECISION_PREFIX}0", {"event": "arrived", "pauses": True})
    assert [trial.number for trial in learnt_from(study).trials][-1] == paused.number


def test_a_trial_that_broke_a_limit_or_diverged_counts_as_one_of_the_worst() -> None:
    study = study_of(honest)
    broken = study.ask(DISTRIBUTIONS)
    broken.report(-9.0, 1)
    broken.set_constraint("system/memory_mib", 3.0)
    study.tell(broken, state=TrialState.PRUNED)
    diverged = study.ask(DISTRIBUTIONS)
    diverged.report(-9.0, 1)
    diverged.set_user_attr(REASON, "loss=nan")
    study.tell(diverged, state=TrialState.FAIL)
    at_once = study.ask(DISTRIBUTIONS)
    at_once.set_user_attr(REASON, "loss=nan")
    study.tell(at_once, state=TrialState.FAIL)
    lost = study.ask(DISTRIBUTIONS)
    lost.report(-9.0, 1)
    lost.set_user_attr(REASON, "a person stopped it")
    study.tell(lost, state=TrialState.FAIL)
    learnt = learnt_from(study)
    numbers = [trial.number for trial in learnt.trials]
    assert lost.number not in numbers
    of_bad = learnt.values[0, [numbers.index(trial.number) for trial in (broken, diverged, at_once)], 0]
    assert (of_bad == np.nanmax(learnt.values[0, :, 0])).all()
    assert np.nanmin(learnt.values) > -1


def test_a_region_where_all_trials_diverge_at_once_is_left() -> None:
    study = optuna.create_study(sampler=sampler())
    diverged = []
    for number in range(40):
        trial = study.ask()
        x, y = (trial.suggest_float(name, 0, 1) for name in SPACE)
        trial.set_user_attr(NUMBER, number)
        diverged.append(x > 0.5)
        if x > 0.5:  # the larger x is, the better, until it diverges
            trial.set_user_attr(REASON, "loss=nan")
            study.tell(trial, state=TrialState.FAIL)
            continue
        for rung in RUNGS:
            trial.report(abs(y - 0.6) - x + 1 / rung, rung)
        study.tell(trial, abs(y - 0.6) - x)
    assert np.mean(diverged[20:]) < 0.3


def test_a_step_that_only_running_trials_have_reached_is_no_rung() -> None:
    study = study_of(honest)
    for _ in range(2):
        study.ask(DISTRIBUTIONS).report(0.5, 2)
    assert learnt_from(study).rungs == [*RUNGS]


def test_a_rung_stays_one_when_the_trials_that_waited_there_go_on() -> None:
    study = study_of(honest)
    for _ in range(2):
        waiting = study.ask(DISTRIBUTIONS)
        waiting.report(0.5, 5)
        waiting.set_user_attr(f"{DECISION_PREFIX}0", {"event": "arrived", "step": 5, "pauses": True})
        waiting.set_user_attr(f"{DECISION_PREFIX}1", {"event": "resumed"})
        waiting.report(0.4, 6)
    assert learnt_from(study).rungs == [1, 3, 5, 9]


def test_hyperparameters_of_the_same_rungs_are_used_again_after_others_were_fitted() -> None:
    study = study_of(honest)
    suggested(study, 2)
    noted = [trial.number for trial in study.get_trials() if CURVE_MODELS in trial.system_attrs]
    other = {"count": 1, "rungs": [1], "vectors": [[0.0] * 8]}
    study._storage.set_trial_system_attr(study.get_trials()[-1]._trial_id, CURVE_MODELS, other)
    suggested(study, 2)
    assert len([trial for trial in study.get_trials() if CURVE_MODELS in trial.system_attrs]) == len(noted) + 1


def test_with_many_earlier_trials_hyperparameters_are_fitted_again_as_the_search_goes_on() -> None:
    earlier = study_of(honest, 300).get_trials()
    for trial in earlier:
        trial.number = -1 - trial.number
    study = study_of(honest, 20, seed=1)
    own = [*study.get_trials()]
    study.get_trials = lambda *args, **named: [*earlier, *own]  # type: ignore[method-assign]
    before = learnt_from(study)
    own += study_of(honest, 20, seed=2).get_trials()
    after = learnt_from(study)
    assert len(before.trials) == len(after.trials) == 200
    assert after.num_values > 1.5 * before.num_values


def test_parameters_that_a_suggestion_does_not_have_are_left_to_the_first_sampler() -> None:
    """A choice that was fixed may have parameters that the suggested choice does not have."""
    momentum = {"type": "float", "low": 0, "high": 1, "when": {"kind": "sgd"}}
    kinds = {"type": "categorical", "choices": ["adam", "sgd"]}
    distributions = {"kind": kinds, "momentum": momentum, "x": {"type": "float", "low": 0, "high": 1}}
    space = space_of(distributions)
    study = optuna.create_study(sampler=CurveSampler(optuna.samplers.RandomSampler(seed=0), space, startup=5, seed=0))
    for number in range(30):
        if number >= 10:
            study.enqueue_trial({"kind": "sgd"})
        trial = study.ask()
        point = space.sample(trial, lambda path: None)
        trial.set_user_attr(NUMBER, number)
        study.tell(trial, abs(point["x"] - 0.3) + 9.0 * (point["kind"] == "sgd"))  # so that it suggests adam
    given = [trial.params["momentum"] for trial in study.get_trials()[10:]]
    assert given.count(0.0) == 0


def test_points_that_are_rejected_one_after_another_are_not_suggested_again() -> None:
    study = study_of(honest)
    rejected = []
    for _ in range(5):
        trial = study.ask()
        rejected.append([trial.suggest_float(name, 0, 1) for name in SPACE])
        study.tell(trial, state=TrialState.FAIL)
    assert len({tuple(point) for point in rejected}) == 5


def test_points_of_a_small_space_are_not_suggested_again_however_many_trials_there_are() -> None:
    space = space_of({name: {"type": "int", "low": 0, "high": 19} for name in ("x", "y")})
    tried = [(x, y) for x in range(20) for y in range(20) if (x + y) % 7]
    study = optuna.create_study(sampler=CurveSampler(optuna.samplers.RandomSampler(seed=0), space, startup=5, seed=0))
    distributions: Any = {name: optuna.distributions.IntDistribution(0, 19) for name in space}
    for order, (x, y) in enumerate(tried):
        study.add_trial(
            optuna.create_trial(
                value=float((x - 9) ** 2 + (y - 12) ** 2),
                params={"x": x, "y": y},
                distributions=distributions,
                user_attrs={NUMBER: order},
            )
        )
    asked = []
    while len(asked) < 10:
        trial = study.ask()
        point = tuple(trial.suggest_int(name, 0, 19) for name in space)
        if study.sampler._seen[1] is not None:  # type: ignore[attr-defined]
            asked.append(point)
    assert not set(asked) & set(tried)


def test_the_best_point_that_the_constraints_allow_is_found_though_better_ones_are_beyond() -> None:
    def allows(point: Any) -> bool:
        return bool(point["x"] + point["y"] <= 0.8)

    study = study_of(honest)
    study.sampler = CurveSampler(optuna.samplers.RandomSampler(seed=0), SPACE, startup=5, seed=0, allows=allows)
    points = suggested(study, 8)
    assert (points.sum(axis=1) <= 0.8).all()
    assert np.median(points[:, 0]) == pytest.approx(0.6, abs=0.1)  # the nearest to (0.7, 0.3)


def test_hyperparameters_are_noted_in_the_trial_and_used_again_until_there_are_many_more_values() -> None:
    study = study_of(honest)
    suggested(study, 3)
    noted = [trial.number for trial in study.get_trials() if CURVE_MODELS in trial.system_attrs]
    assert len(noted) == 1
    again = optuna.create_study(sampler=sampler())
    again.add_trials(study.get_trials())
    assert suggested(again, 1) == pytest.approx(suggested(study, 1))


def test_with_several_objectives_the_suggestions_lie_along_the_front_and_are_the_same_again() -> None:
    """The front of these is the line from (0.2, 0.2) to (0.8, 0.8); early values tell the end."""

    def ask(study: optuna.Study) -> optuna.Trial:
        trial = study.ask()
        x, y = (trial.suggest_float(name, 0, 1) for name in SPACE)
        ends = [(x - at) ** 2 + (y - at) ** 2 for at in (0.2, 0.8)]
        reported = RUNGS if max(x, y) > 0.5 else RUNGS[:2]
        for rung in reported:
            trial.set_user_attr(f"{REPORT_PREFIX}{rung}", [end + 0.1 / rung for end in ends])
        study.tell(trial, [end + 0.1 / reported[-1] for end in ends])
        return trial

    found = []
    for _ in range(2):
        study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler())
        while len(study.trials) < 40:
            ask(study)
        found.append(np.array([[each.params[name] for name in SPACE] for each in study.trials]))
    points, again = found
    assert np.array_equal(points, again)
    late = points[20:]
    off = np.abs(late[:, 0] - late[:, 1])
    assert np.median(off) < 0.05
    along = late[off < 0.1].mean(axis=1)
    assert along.min() < 0.35
    assert along.max() > 0.65


@pytest.mark.parametrize("choices", [[None, 2, 4], [2, None, 4], [2, 4, None]])
def test_an_ordered_choice_of_null_has_its_own_place_among_the_others(choices: list[Any]) -> None:
    depth = {"type": "ordinal", "choices": choices, "when": {"kind": "tree"}}
    cube = UnitCube(space_of({"kind": {"type": "constant", "value": "tree"}, "depth": depth}))
    assert cube.matrix([{"depth": choice} for choice in choices]).tolist() == [[0, 1], [0.5, 1], [1, 1]]
    assert cube.vector({}).tolist() == [0.5, 0]
