"""OptunaSearcher: seeded suggestions, and the state of every trial in the study."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from spaces import sampler_of, space_of

from sweeps.config.samplers import RandomSampler, Sampler
from sweeps.config.search import Limit
from sweeps.constants import COMPLETED, LINEAGE, REASON, STEP, STOPPED
from sweeps.errors import ConfigError
from sweeps.search import OptunaSearcher
from sweeps.search.samplers.build_sampler import build_sampler, shuffled
from sweeps.space.space import Space

SPACE = space_of(
    {
        "lr": {"type": "float", "low": 1e-4, "high": 1e-1, "log": True},
        "layers": {"type": "int", "low": 1, "high": 4},
        "kind": {"type": "categorical", "choices": ["a", "b"]},
        "width": {"type": "int", "low": 8, "high": 64, "step": 8, "when": {"kind": "b"}},
    }
)


FINITE = Space({name: SPACE[name] for name in ("layers", "kind")})


def searcher(sampler: Sampler | None = None, space: Any = SPACE, **options: Any) -> OptunaSearcher:
    space = space if isinstance(space, Space) else Space(space)
    built = build_sampler(sampler, 0, space) if sampler else None
    return OptunaSearcher(space, **{"metric": "loss", "mode": "min", **options}, sampler=built)


def stored(folder: Path, **options: Any) -> OptunaSearcher:
    """Searcher whose study outlives it."""
    storage = JournalStorage(JournalFileBackend(str(folder / "optuna.log")))
    return searcher(storage=storage, study_name="study", **options)


def result(value: float, step: int, **flags: bool) -> dict[str, Any]:
    return {"loss": value, STEP: step, "training_iteration": step, **flags}


def finish(search: OptunaSearcher, trial_id: str, value: float) -> None:
    search.on_trial_complete(trial_id, result(value, 3, **{COMPLETED: True}))


ENDINGS = {
    "finished": (result(0.5, 3, **{COMPLETED: True}), False, TrialState.COMPLETE, 0.4, None),
    "pruned": (result(0.5, 3, **{COMPLETED: False}), False, TrialState.PRUNED, 0.5, None),
    "pruned while it was paused": (None, False, TrialState.PRUNED, 0.4, None),
    "stopped by a person": (
        result(0.5, 3, **{COMPLETED: False, STOPPED: True}), False, TrialState.FAIL, None, "stopped by a person",
    ),
    "nan": (result(math.nan, 3, **{COMPLETED: True}), False, TrialState.FAIL, None, "loss=nan"),
    "infinite": (result(-math.inf, 3, **{COMPLETED: True}), False, TrialState.FAIL, None, "loss=-inf"),
    "failed": (None, True, TrialState.FAIL, None, "out of memory"),
    "returned": (result(0.4, 2), False, TrialState.COMPLETE, 0.4, None),
    "pruned, in a trainable that knows nothing of us": (result(0.5, 3), False, TrialState.PRUNED, 0.5, None),
}  # fmt: skip


class Knowing(OptunaSearcher):
    def why_failed(self, trial_id: str) -> str:
        return "out of memory"


@pytest.mark.parametrize(("ending", "error", "state", "value", "reason"), ENDINGS.values(), ids=ENDINGS)
def test_the_study_is_told_how_a_trial_really_ended(
    ending: dict[str, Any] | None, error: bool, state: TrialState, value: float | None, reason: str | None
) -> None:
    search = Knowing(SPACE, metric="loss", mode="min")
    search.suggest("t")
    search.on_trial_result("t", result(0.9, 1))
    search.on_trial_result("t", result(0.4, 2))
    search.on_trial_result("t", result(0.4, 2))  # reported again by a retry
    search.on_trial_complete("t", ending, error=error)
    search.on_trial_complete("t", ending, error=error)  # Tune may say it twice
    (told,) = search.study.trials
    assert (told.state, told.value, told.user_attrs.get(REASON)) == (state, value, reason)
    assert {1: 0.9, 2: 0.4}.items() <= told.intermediate_values.items()
    assert (3 in told.intermediate_values) == (ending is not None and ending["loss"] == 0.5)


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (None, "it ended before it reported loss"),
        ({"training_iteration": 1, COMPLETED: False, STOPPED: True}, "stopped by a person"),
    ],
)
def test_a_trial_that_never_reported_failed(ending: dict[str, Any] | None, reason: str) -> None:
    search = searcher()
    search.suggest("t")
    search.on_trial_complete("t", ending)
    assert search.study.trials[0].state == TrialState.FAIL
    assert search.study.trials[0].user_attrs[REASON] == reason


def test_after_its_end_a_trial_has_its_number_and_its_reports_are_ignored() -> None:
    search = searcher(RandomSampler(kind="random"))
    search.suggest("a")
    finish(search, "a", 0.4)
    search.on_trial_result("a", result(0.1, 4))
    search.on_trial_complete("a", result(0.1, 4))
    search.on_trial_result("nobody's", result(0.1, 4))
    assert search.number("a") == 0
    assert search.study.best_value == 0.4


def test_what_is_measured_again_after_an_exploit_counts_and_after_a_retry_does_not(tmp_path: Path) -> None:
    search = stored(tmp_path)
    search.suggest("t")
    reports = [(0.9, 1, 0), (0.8, 2, 0), (0.7, 2, 1), (0.1, 2, 1), (0.2, 2, 2), (0.6, 3, 2)]
    for number, (loss, step, lineage) in enumerate(reports):
        search.on_trial_result("t", {**result(loss, step), LINEAGE: lineage})
        if number == 2:
            search = stored(tmp_path)  # its driver died
            search.suggest("t")
    search.on_trial_complete("t", {**result(0.5, 4, **{COMPLETED: True}), LINEAGE: 2})
    (told,) = search.study.trials
    assert told.intermediate_values == {1: 0.9, 2: 0.8, 3: 0.6, 4: 0.5}
    assert told.value == 0.2


# --- a driver that dies, and one that is interrupted -----------------------------------------------------------


def test_what_a_driver_left_running_is_suggested_again_first_under_its_number(tmp_path: Path) -> None:
    first = stored(tmp_path)
    points = [first.suggest(str(index)) for index in range(3)]
    first.on_trial_result("0", result(0.3, 1))
    first.on_trial_complete("1", None, error=True)
    first.study.ask()  # and it died while it made a fourth

    second = stored(tmp_path, num_trials=4)
    assert [(left.number, left.point) for left in second.unfinished] == [(0, points[0]), (2, points[2])]
    assert [second.suggest(name) for name in "ab"] == [points[0], points[2]]
    assert second.suggest("c") not in points
    assert [second.number(name) for name in "abc"] == [0, 2, 3]
    assert second.suggest("d") is None
    second.on_trial_complete("a", result(0.5, 2, **{COMPLETED: True}))
    assert second.study.trials[0].value == 0.3  # reported to the first driver
    assert len(second.study.trials) == 4


@pytest.mark.parametrize(
    ("ending", "error", "continues"),
    [
        (None, True, True),
        (None, False, True),
        (result(0.5, 1, **{COMPLETED: False, STOPPED: True}), False, True),
        (result(0.5, 3, **{COMPLETED: True}), False, False),
    ],
)
def test_an_interrupted_trial_stays_to_be_continued_unless_it_has_finished(
    tmp_path: Path, ending: dict[str, Any] | None, error: bool, continues: bool
) -> None:
    first = stored(tmp_path)
    point = first.suggest("0")
    first.interrupted = True
    first.on_trial_complete("0", ending, error=error)
    assert [left.point for left in stored(tmp_path).unfinished] == ([point] if continues else [])


def test_each_point_is_trained_once_by_all_drivers_together_also_if_its_condition_names_a_step_of_a_float(
    tmp_path: Path,
) -> None:
    space = space_of(
        {
            "x": {"type": "float", "low": 0.1, "high": 0.4, "step": 0.1},
            "n": {"type": "int", "low": 1, "high": 3, "when": {"x": 0.3}},
        }
    )
    points = []
    for _ in range(7):
        search = stored(tmp_path, sampler=RandomSampler(kind="random"), space=space)
        points.append(search.suggest("0"))
        finish(search, "0", 0.5)
    every = [*({"x": x} for x in (0.1, 0.2, 0.4)), *({"x": 0.3, "n": n} for n in (1, 2, 3)), OptunaSearcher.FINISHED]
    assert sorted(map(str, points)) == sorted(map(str, every))


def test_points_to_try_first_are_tried_once_by_all_drivers_together(tmp_path: Path) -> None:
    points = [{"lr": 0.01}, {"lr": 0.02}, {"lr": 0.03}]
    rates = []
    for count in (1, 1, 3):
        search = stored(tmp_path, points=points)
        for _ in range(count):
            point = search.suggest(f"{len(rates)}")
            assert point is not None
            rates.append(point["lr"])
            finish(search, f"{len(rates) - 1}", 0.5)
    assert rates[:3] == [0.01, 0.02, 0.03]
    assert not set(rates[3:]) & set(rates[:3])


def test_what_a_point_leaves_out_is_sampled_anew_until_the_point_is_valid() -> None:
    space = space_of({f"x{n}": {"type": "int", "low": 1, "high": 20} for n in range(2)})

    def validate(point: Mapping[str, Any]) -> None:
        if point["x1"] > 2:
            raise ConfigError("x1 is too large")

    search = searcher(RandomSampler(kind="random"), space, points=[{"x0": 7}, {"x0": 9}], validate=validate)
    points = [search.suggest(str(number)) for number in range(2)]
    assert sorted(point["x0"] for point in points if point) == [7, 9]
    assert all(point["x1"] <= 2 for point in points if point)


def test_a_point_with_a_conditional_parameter_alone_is_tried_with_the_values_under_which_it_exists() -> None:
    kinds = {"type": "categorical", "choices": ["a", "b", "c", "d"]}
    space = space_of(
        {
            "kind": kinds,
            "part": {**kinds, "when": {"kind": ["b", "c"]}},
            "width": {"type": "int", "low": 1, "high": 99, "when": {"part": "d", "host": "here"}},
            "depth": {"type": "int", "low": 1, "high": 99, "when": {"kind": "c"}},
        }
    )
    points = [{"width": 7, "depth": 7}, {"kind": "b", "width": 8}, {"width": 9, "kind": "b", "part": "d"}]
    search = searcher(RandomSampler(kind="random"), space, points=points, lookup={"host": "here"}.get)
    assert [search.suggest(str(number)) for number in range(3)] == [
        {"kind": "c", "part": "d", "width": 7, "depth": 7},
        {"kind": "b", "part": "d", "width": 8},
        {"kind": "b", "part": "d", "width": 9},
    ]


def test_a_given_point_whose_other_values_cannot_change_is_not_tried_again() -> None:
    optimizer = {"type": "categorical", "choices": ["adamw", "sgd"]}
    momentum = {"type": "int", "low": 1, "high": 99, "when": {"optimizer": "sgd"}}
    points = [{"momentum": 5}, {"optimizer": "sgd", "momentum": 5}, {"momentum": 5}]
    space = space_of({"optimizer": optimizer, "momentum": momentum})
    search = searcher(RandomSampler(kind="random"), space, points=points)
    assert search.suggest("0") == {"optimizer": "sgd", "momentum": 5}
    search.suggest("1")
    assert sum(trial.state == TrialState.FAIL for trial in search.study.trials) <= 4


def test_each_value_under_which_a_given_parameter_exists_is_tried_until_the_point_is_valid_and_new() -> None:
    kinds = {"type": "categorical", "choices": ["a", "b", "c", "d"]}
    space = space_of(
        {
            "kind": kinds,
            "part": {**kinds, "when": {"kind": ["b", "c"]}},
            "width": {"type": "int", "low": 1, "high": 99, "when": {"part": ["a", "b", "d"]}},
        }
    )

    def validate(point: Mapping[str, Any]) -> None:
        if (point["kind"], point.get("part")) == ("b", "a"):
            raise ConfigError("b has no part a")

    search = searcher(RandomSampler(kind="random"), space, points=[{"width": 7}] * 5, validate=validate)
    found = [search.suggest(str(number)) for number in range(5)]
    assert sorted(map(str, found)) == [
        str({"kind": kind, "part": part, "width": 7}) for kind in "bc" for part in "abd" if kind + part != "ba"
    ]


@pytest.mark.parametrize("seed", range(4))
def test_a_point_that_an_earlier_release_enqueued_without_its_condition_is_sampled_anew_until_it_is_new(
    seed: int,
) -> None:
    space = space_of({name: SPACE[name] for name in ("kind", "width")})
    search = OptunaSearcher(
        space,
        metric="loss",
        mode="min",
        points=[{"kind": "a"}],
        sampler=build_sampler(RandomSampler(kind="random"), seed, space),
    )
    assert search.suggest("0") == {"kind": "a"}
    search.study.enqueue_trial({"width": 16})
    assert search.suggest("1") == {"kind": "b", "width": 16}


# --- how many --------------------------------------------------------------------------------------------------


def started(search: OptunaSearcher, concurrent: int) -> int:
    """Run trials, a fixed number at once, until the searcher ends the search."""
    ids: list[str] = []
    running: list[str] = []
    while (point := search.suggest(f"{search.study.study_name} {len(ids)}")) != OptunaSearcher.FINISHED:
        if point is not None:
            ids.append(f"{search.study.study_name} {len(ids)}")
            running.append(ids[-1])
        if running and (point is None or len(running) == concurrent):
            search.on_trial_complete(running.pop(0), result(0.5, 1), error=len(ids) % 3 == 0)
    return len(ids)


@pytest.mark.parametrize("concurrent", [1, 4, 30])
def test_exactly_as_many_trials_start_as_were_asked_for(concurrent: int) -> None:
    def even(point: Any) -> None:
        if point["layers"] % 2:
            raise ConfigError("layers must be even")

    points = [{"layers": 2}, {"layers": 3}, {"lr": 0.01}]
    search = searcher(num_trials=20, points=points, validate=even, advisors=[Stubborn(layers=2)])
    assert started(search, concurrent) == 20
    assert search.ended_because == "20 trials were started"
    search.num_trials = 23
    assert started(search, concurrent) == 3


def test_a_search_that_is_opened_again_starts_what_is_left_of_its_number(tmp_path: Path) -> None:
    assert started(stored(tmp_path, num_trials=5), concurrent=2) == 5
    assert started(stored(tmp_path, num_trials=5), concurrent=2) == 0
    more = stored(tmp_path, num_trials=7)
    more.suggest("x")
    assert more.number("x") == 5


def test_a_search_ends_when_it_is_enough() -> None:
    def enough(study: optuna.Study) -> str | None:
        done = [trial for trial in study.trials if trial.state == TrialState.COMPLETE]
        return "three are done" if len(done) == 3 else None

    search = searcher(enough=enough)
    for index in range(3):
        search.suggest(str(index))
        finish(search, str(index), 0.5)
    assert search.suggest("3") == OptunaSearcher.FINISHED
    assert search.ended_because == "three are done"


def test_of_a_space_of_which_one_point_in_a_thousand_is_valid_all_trials_start() -> None:
    def near_the_corner(point: Any) -> None:
        if point["x"] + point["y"] > 0.045:
            raise ConfigError("too far")

    unit = {"type": "float", "low": 0, "high": 1}
    search = searcher(RandomSampler(kind="random"), space_of({"x": unit, "y": unit}), validate=near_the_corner)
    assert all(isinstance(search.suggest(str(index)), dict) for index in range(8)), search.ended_because


# --- duplicates ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tpe", "random"])
def test_every_point_of_a_finite_space_is_trained_once_and_then_it_is_over(kind: str, tmp_path: Path) -> None:
    space = Space({name: SPACE[name] for name in ("kind", "width")})
    points: list[Any] = []
    while True:
        search = stored(tmp_path, sampler=sampler_of(kind), space=space)  # anew every time
        point = search.suggest("0")
        if point == OptunaSearcher.FINISHED:
            break
        points.append(point)
        finish(search, "0", 0.5)
    assert sorted(map(str, points)) == sorted(map(str, space.grid(lambda path: None)))
    assert search.ended_because == "no point of the space is left that can be trained"
    assert search.num_awaited == 0, "a population does not wait for more trials than there are points"


def test_steps_of_a_float_are_equal_by_their_step_and_not_by_their_last_digit() -> None:
    space = space_of({"x": {"type": "float", "low": 0.0, "high": 1.0, "step": 0.1}})
    search = searcher(space=space, points=[{"x": 0.3}, {"x": 0.1 + 0.2}, {"x": 0.7}])
    points = [search.suggest(str(index)) for index in range(2)]
    assert [round(point["x"], 6) for point in points if point is not None] == [0.3, 0.7]


def test_duplicates_are_trained_when_they_are_wanted() -> None:
    search = searcher(space={"kind": SPACE["kind"]}, duplicates=True, num_trials=9)
    assert started(search, concurrent=2) == 9


# --- several objectives and limits -----------------------------------------------------------------------------


def test_a_trial_with_several_objectives_has_the_values_of_its_best_report(tmp_path: Path) -> None:
    search = stored(tmp_path, metric=["loss", "speed"], mode=["min", "max"])
    search.suggest("0")
    for step, (loss, speed) in enumerate([(0.9, 10.0), (0.3, 8.0), (0.5, 12.0)], start=1):
        search.on_trial_result("0", {**result(loss, step), "speed": speed})
    search = stored(tmp_path, metric=["loss", "speed"], mode=["min", "max"])  # its driver died
    search.suggest("0")
    search.on_trial_complete("0", {**result(0.6, 4, **{COMPLETED: True}), "speed": 20.0})
    search.suggest("1")
    search.on_trial_complete("1", {**result(0.2, 4, **{COMPLETED: False}), "speed": 20.0})
    search.suggest("2")
    search.on_trial_complete("2", {**result(0.2, 4, **{COMPLETED: True}), "speed": math.nan})
    told = search.study.trials
    assert [trial.state for trial in told] == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL]
    assert told[0].values == [0.3, 8.0]
    assert told[0].user_attrs["sweeps:report:3"] == [0.5, 12.0]
    assert told[2].user_attrs[REASON] == "speed=nan"


def test_a_trial_that_broke_a_limit_is_not_the_best(tmp_path: Path) -> None:
    limits = {"memory": Limit(max=100.0)}
    search = stored(tmp_path, limits=limits)
    for index in range(2):
        search.suggest(str(index))
    search.on_trial_result("0", {**result(0.1, 1), "memory": 150})
    search = stored(tmp_path, limits=limits)  # its driver died
    for index in range(3):
        search.suggest(str(index))
    for index, (loss, memory) in enumerate([(0.2, 50), (0.5, 80), (0.6, 100)]):
        search.on_trial_complete(str(index), {**result(loss, 2, **{COMPLETED: True}), "memory": memory})
    told = search.study.trials
    assert [trial.constraints for trial in told] == [{"memory <= 100": 0.5}, {"memory <= 100": 0}, {"memory <= 100": 0}]
    assert search.study.best_value == 0.5


# --- points ----------------------------------------------------------------------------------------------------


def test_a_trainable_may_report_numbers_of_numpy(tmp_path: Path) -> None:
    limits = {"memory": Limit(max=1)}
    search = stored(tmp_path, metric=["loss", "speed"], mode=["min", "max"], limits=limits)
    search.suggest("t")
    reported = {"loss": np.float32(0.5), "speed": np.float32(2), "memory": np.float32(3)}
    search.on_trial_complete("t", {**reported, "training_iteration": 1, COMPLETED: True})
    (trial,) = search.study.get_trials()
    assert (trial.values, trial.constraints) == ([0.5, 2.0], {"memory <= 1": 2.0})


def test_a_grid_suggests_every_point_once_and_then_nothing() -> None:
    grid = shuffled(FINITE.grid(lambda path: None), seed=0)
    search = searcher(space=FINITE, points=[{"layers": 2, "kind": "b"}], grid=grid)
    points = [search.suggest(str(index)) for index in range(8)]
    assert search.suggest("one more") is None
    assert points[0] == {"layers": 2, "kind": "b"}
    assert sorted(map(str, points)) == sorted(map(str, grid))
    assert [point for point in grid if point != points[0]] == points[1:]


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
    """Advisor that sets the number of layers and refuses points of kind b."""

    def __init__(self, layers: int = 1) -> None:
        self.layers = layers
        self.refused = 0

    def fix(self, study: optuna.Study, number: int) -> Mapping[str, Any]:
        return {"layers": self.layers}

    def refuse(self, study: optuna.Study, point: Mapping[str, Any]) -> str | None:
        self.refused += point["kind"] == "b"
        return "no b" if point["kind"] == "b" else None


def test_advisors_set_values_of_a_point_and_refuse_others() -> None:
    advisor = Stubborn()
    search = searcher(RandomSampler(kind="random"), advisors=[advisor])
    points = [search.suggest(str(index)) for index in range(8)]
    assert [(point["layers"], point["kind"]) for point in points if point is not None] == [(1, "a")] * 8
    assert advisor.refused == sum(trial.state == TrialState.FAIL for trial in search.study.trials) > 0


def test_a_point_of_a_person_is_not_refused() -> None:
    point = searcher(points=[{"kind": "b"}], advisors=[Stubborn()]).suggest("0")
    assert point is not None
    assert point["kind"] == "b"


def test_when_all_is_refused_a_point_is_trained_after_all() -> None:
    class Never(Stubborn):
        def refuse(self, study: optuna.Study, point: Mapping[str, Any]) -> str | None:
            return "never"

    assert isinstance(searcher(advisors=[Never()]).suggest("0"), dict)


def test_a_space_without_a_valid_point_is_given_up_with_the_reason() -> None:
    def never(point: Any) -> None:
        raise ConfigError("it never fits")

    with pytest.raises(
        ConfigError, match="none of 10,000 random points can be trained; the last that was tried: it never fits"
    ):
        searcher(RandomSampler(kind="random"), validate=never).suggest("0")
