"""The searcher: seeded, and truthful in what it tells the study."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState
from pydantic import TypeAdapter

from sweeps.config.search import GridSampler, RandomSampler, Sampler, TPESampler
from sweeps.config.space import Distribution
from sweeps.constants import COMPLETED, STEP, STOPPED
from sweeps.errors import ConfigError
from sweeps.search import OptunaSearcher
from sweeps.search.samplers import build_sampler, shuffled
from sweeps.space import Space

SPACE: dict[str, Distribution] = TypeAdapter(dict[str, Distribution]).validate_python(
    {
        "lr": {"type": "float", "low": 1e-4, "high": 1e-1, "log": True},
        "layers": {"type": "int", "low": 1, "high": 4},
        "kind": {"type": "categorical", "choices": ["a", "b"]},
        "width": {"type": "int", "low": 8, "high": 64, "step": 8, "when": {"kind": "b"}},
    }
)


def searcher(sampler: Sampler | None = None, seed: int = 0, **options: Any) -> OptunaSearcher:
    built = build_sampler(sampler, seed) if sampler else None
    return OptunaSearcher(SPACE, metric="loss", mode="min", sampler=built, **options)


def result(value: float, step: int, **flags: bool) -> dict[str, Any]:
    return {"loss": value, STEP: step, "training_iteration": step, **flags}


def finish(search: OptunaSearcher, trial_id: str, value: float) -> None:
    search.on_trial_complete(trial_id, result(value, 3, **{COMPLETED: True}))


@pytest.mark.parametrize("sampler", [TPESampler(kind="tpe", startup_trials=3), RandomSampler(kind="random")], ids=str)
def test_the_same_seed_makes_the_same_suggestions_one_trial_at_a_time(sampler: Sampler) -> None:
    def points(seed: int) -> list[Any]:
        search = searcher(sampler, seed)
        made = []
        for index in range(12):
            point = search.suggest(str(index))
            assert point is not None
            made.append(point)
            finish(search, str(index), abs(math.log10(point["lr"]) + 2))
        return made

    assert points(seed=1) == points(seed=1)
    assert points(seed=1) != points(seed=2)


def test_tpe_learns_where_the_good_values_are() -> None:
    search = searcher(TPESampler(kind="tpe", startup_trials=8))
    errors = []
    for index in range(60):
        point = search.suggest(str(index))
        assert point is not None
        errors.append(abs(math.log10(point["lr"]) + 2))
        finish(search, str(index), errors[-1])
    assert sum(errors[-20:]) < 0.5 * sum(errors[:20])


@pytest.mark.parametrize(
    ("ending", "error", "state", "value"),
    [
        (result(0.5, 3, **{COMPLETED: True}), False, TrialState.COMPLETE, 0.4),
        (result(0.5, 3, **{COMPLETED: False}), False, TrialState.PRUNED, 0.5),
        (result(0.5, 3, **{COMPLETED: False, STOPPED: True}), False, TrialState.FAIL, None),
        (result(math.nan, 3, **{COMPLETED: True}), False, TrialState.FAIL, None),
        (result(math.inf, 3, **{COMPLETED: True}), False, TrialState.FAIL, None),
        (None, True, TrialState.FAIL, None),
    ],
    ids=["finished", "pruned", "stopped by a person", "nan", "infinite", "failed"],
)
def test_the_study_is_told_how_a_trial_really_ended(
    ending: dict[str, Any] | None, error: bool, state: TrialState, value: float | None
) -> None:
    search = searcher()
    search.suggest("t")
    search.on_trial_result("t", result(0.9, 1))
    search.on_trial_result("t", result(0.4, 2))
    search.on_trial_result("t", result(0.4, 2))  # reported again by a retry
    search.on_trial_complete("t", ending, error=error)
    (told,) = search.study.trials
    assert told.state == state
    assert told.value == value
    assert {1: 0.9, 2: 0.4}.items() <= told.intermediate_values.items()


def test_points_come_first_and_what_they_leave_out_is_sampled() -> None:
    search = searcher(points=[{"lr": 0.01, "kind": "a"}, {"layers": 2}])
    first, second = search.suggest("0"), search.suggest("1")
    assert first is not None
    assert second is not None
    assert (first["lr"], first["kind"]) == (0.01, "a")
    assert second["layers"] == 2


def test_a_grid_suggests_every_point_once_and_then_nothing() -> None:
    space = Space({name: SPACE[name] for name in ("layers", "kind")})
    grid = shuffled(space.grid(lambda path: None), seed=0)
    sampler = build_sampler(GridSampler(kind="grid"), 0)
    search = OptunaSearcher(space, metric="loss", mode="min", sampler=sampler, points=grid, only_points=True)
    points = [search.suggest(str(index)) for index in range(9)]
    assert points[-1] == OptunaSearcher.FINISHED
    assert sorted(map(str, points[:-1])) == sorted(map(str, grid))


def test_a_point_that_makes_no_valid_config_is_told_as_failed_and_the_next_is_asked() -> None:
    def even(point: Any) -> None:
        if point["layers"] % 2:
            raise ConfigError("layers must be even")

    search = searcher(RandomSampler(kind="random"), validate=even)
    for index in range(5):
        point = search.suggest(str(index))
        assert point is not None
        assert point["layers"] % 2 == 0
    assert {trial.state for trial in search.study.trials} == {TrialState.FAIL, TrialState.RUNNING}


class Stubborn:
    """An advisor that wants one layer and no point of kind b."""

    def __init__(self) -> None:
        self.refused = 0

    def fix(self, study: optuna.Study, number: int) -> Mapping[str, Any]:
        return {"layers": 1}

    def refuse(self, study: optuna.Study, point: Mapping[str, Any]) -> str | None:
        self.refused += point["kind"] == "b"
        return "no b" if point["kind"] == "b" else None


def test_advisors_set_values_of_a_point_and_refuse_others() -> None:
    advisor = Stubborn()
    search = searcher(RandomSampler(kind="random"), advisors=[advisor])
    points = [search.suggest(str(index)) for index in range(8)]
    assert [(point["layers"], point["kind"]) for point in points if point is not None] == [(1, "a")] * 8
    assert advisor.refused == sum(trial.state == TrialState.FAIL for trial in search.study.trials) > 0


def test_when_all_is_refused_a_point_is_trained_after_all() -> None:
    advisor = Stubborn()
    search = searcher(points=[{"kind": "b"}] * 11, advisors=[advisor])
    point = search.suggest("0")
    assert point is not None
    assert point["kind"] == "b"
    assert advisor.refused == 10


def test_a_space_without_a_valid_point_is_given_up_with_the_reason() -> None:
    def never(point: Any) -> None:
        raise ConfigError("it never fits")

    with pytest.raises(ConfigError, match="it never fits"):
        searcher(RandomSampler(kind="random"), validate=never).suggest("0")
