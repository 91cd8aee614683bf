"""The space: inclusive bounds, conditions, grids and points."""

from __future__ import annotations

import math
from typing import Any

import optuna
import pytest
from pydantic import TypeAdapter

from sweeps.config.space import Distribution, IntDistribution
from sweeps.errors import ConfigError
from sweeps.space.distributions import boundary_values, contains, grid_values
from sweeps.space.space import Lookup, Space, check_point
from sweeps.space.suggester import RandomDraws

READ: TypeAdapter[dict[str, Distribution]] = TypeAdapter(dict[str, Distribution])


def space_of(**distributions: dict[str, Any]) -> Space:
    return Space(READ.validate_python({name.replace("__", "."): value for name, value in distributions.items()}))


def nothing(path: str) -> Any:
    return None


def sampled(space: Space, count: int = 200, lookup: Lookup = nothing) -> list[dict[str, Any]]:
    """Random points, half of them sampled with Optuna and half without."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    by_optuna = [space.sample(study.ask(), lookup) for _ in range(count)]
    draws = RandomDraws(seed=0)
    return [*by_optuna, *(space.sample(draws, lookup) for _ in range(count))]


DISCRETE = [
    ({"type": "int", "low": 2, "high": 5}, [2, 3, 4, 5], [1, 6, 2.5, True, "2", None]),
    ({"type": "int", "low": -3, "high": -3}, [-3], [-4, -2, 3]),
    ({"type": "int", "low": 2, "high": 9, "step": 3}, [2, 5, 8], [3, 9, 11]),
    ({"type": "int", "low": 1, "high": 4, "log": True}, [1, 2, 3, 4], [0, 5]),
    ({"type": "float", "low": 0.0, "high": 0.5, "step": 0.25}, [0.0, 0.25, 0.5], [0.1, 0.75, True]),
    ({"type": "float", "low": 0.0, "high": 0.6, "step": 0.25}, [0.0, 0.25, 0.5], [0.6]),
    ({"type": "float", "low": 0.1, "high": 0.3, "step": 0.1}, [0.1, 0.2, 0.3], [0.0, 0.15, 0.4]),
    ({"type": "float", "low": 0.7, "high": 0.7 + 0.2, "step": 0.1}, [0.7, 0.8, 0.9], [0.6, 1.0]),  # below 0.9 in floats
    ({"type": "float", "low": -1.0, "high": 1.0, "step": 0.7}, [-1.0, -0.3, 0.4], [1.0, 1.1]),
    ({"type": "categorical", "choices": [True, 2, "1", None]}, [True, 2, "1", None], [0, "2", False, 1]),
    ({"type": "categorical", "choices": [["q", "v"], "all", {"a": 1}]}, [["q", "v"], "all", {"a": 1}], ["q"]),
    ({"type": "ordinal", "choices": ["small", "medium", "large"]}, ["small", "medium", "large"], ["huge", 0]),
    ({"type": "ordinal", "choices": [64]}, [64], [0, 32]),
    ({"type": "constant", "value": [1, 2]}, [[1, 2]], [1, None]),
    ({"type": "float", "low": 0.5, "high": 0.5}, [0.5], [0, 1]),
    ({"type": "float", "low": 1e-3, "high": 1e-3, "log": True}, [1e-3], [0, 1]),
]


@pytest.mark.parametrize(("distribution", "values", "outside"), DISCRETE)
def test_every_value_of_a_discrete_distribution_is_sampled_and_nothing_else(
    distribution: dict[str, Any], values: list[Any], outside: list[Any]
) -> None:
    space = space_of(x=distribution)
    seen = [point["x"] for point in sampled(space)]
    near = [pytest.approx(value) if isinstance(value, float) else value for value in values]
    assert all(any(value == one and type(value) is type(values[i]) for i, one in enumerate(near)) for value in seen)
    assert all(one in seen for one in near)
    assert list(grid_values("x", space["x"])) == near
    assert boundary_values(space["x"]) in (near, [near[0], near[-1]])
    assert all(contains(space["x"], value) for value in [*seen, *values])
    assert not any(contains(space["x"], value) for value in outside)


@pytest.mark.parametrize(("low", "high", "log"), [(1e-4, 1e-2, False), (1e-4, 1e-2, True), (-2.0, 3.0, False)])
def test_a_real_range_is_filled_up_to_both_of_its_ends_and_not_beyond(low: float, high: float, log: bool) -> None:
    space = space_of(x={"type": "float", "low": low, "high": high, "log": log})
    seen = [point["x"] for point in sampled(space, 500)]
    assert low <= min(seen)
    assert max(seen) <= high
    if log:
        low, high, seen = math.log(low), math.log(high), [math.log(value) for value in seen]
    hundredth = (high - low) / 100
    assert min(seen) < low + hundredth
    assert max(seen) > high - hundredth
    assert contains(space["x"], space["x"].low)  # type: ignore[union-attr]
    assert contains(space["x"], space["x"].high)  # type: ignore[union-attr]


@pytest.mark.parametrize(("distribution", "values", "outside"), DISCRETE)
def test_an_enqueued_point_is_the_one_that_is_suggested(
    distribution: dict[str, Any], values: list[Any], outside: list[Any]
) -> None:
    space = space_of(x=distribution)
    study = optuna.create_study()
    for value in values:
        study.enqueue_trial(space.encode({"x": value}))
        assert space.sample(study.ask(), nothing) == {"x": value}


@pytest.mark.parametrize(
    ("choices", "given"),
    [([[1, 2], [3, 4]], [1.0, 2.0]), ([{"a": 1, "b": 2}, {"a": 2, "b": 1}], {"b": 2, "a": 1}), ([1, 2], 1.0)],
)
def test_an_enqueued_choice_may_be_written_otherwise_than_in_the_space(choices: list[Any], given: Any) -> None:
    space = space_of(x={"type": "categorical", "choices": choices})
    check_point(space, {"x": given}, "search.points.0", nothing)
    study = optuna.create_study()
    study.enqueue_trial(space.encode({"x": given}))
    assert str(space.sample(study.ask(), nothing)["x"]) == str(choices[0])


def test_a_step_that_another_program_computed_in_floats_is_in_the_range() -> None:
    space = space_of(x={"type": "float", "low": 0.1, "high": 0.3, "step": 0.1})
    computed = 0.1 + 2 * 0.1
    assert computed > 0.3
    check_point(space, {"x": computed}, "search.points.0", nothing)
    study = optuna.create_study()
    study.enqueue_trial(space.encode({"x": computed}))
    assert space.sample(study.ask(), nothing) == {"x": 0.3}


@pytest.mark.parametrize(("low", "high"), [(0, 2**32 - 1), (-(2**63) + 1, 2**63 - 1)])
def test_a_range_with_too_many_values_for_a_list_is_refused_however_wide_it_is(low: int, high: int) -> None:
    with pytest.raises(ConfigError, match=r"space.seed: step=1 makes [\d,]+ values of a grid; give a larger step"):
        grid_values("seed", IntDistribution(type="int", low=low, high=high))


def test_neighbours_of_ordered_choices_are_neighbours_to_the_sampler() -> None:
    space = space_of(x={"type": "ordinal", "choices": ["small", "medium", "large"]})
    trial = optuna.create_study().ask({})
    point = space.sample(trial, nothing)
    assert trial.distributions == {"x": optuna.distributions.IntDistribution(0, 2)}
    assert ["small", "medium", "large"][trial.params["x"]] == point["x"]


@pytest.mark.parametrize("choices", [[1, True], [0, False], [1, 1.0], ["a", "a"]])
def test_choices_that_are_equal_are_refused(choices: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"equal|twice"):
        space_of(x={"type": "categorical", "choices": choices})


def test_conditions_hold_together_over_several_values_and_levels() -> None:
    """Each parameter exists exactly where its own condition and those of its parents hold."""
    space = space_of(
        c={"type": "int", "low": 0, "high": 1, "when": {"b": [10, 30], "a": ["x", "y"]}},
        d={"type": "constant", "value": 7, "when": {"c": 1}},
        b={"type": "ordinal", "choices": [10, 20, 30], "when": {"a": ["y", "z"], "fixed": "on"}},
        a={"type": "categorical", "choices": ["x", "y", "z"]},
        e={"type": "float", "low": 0, "high": 1, "when": {"fixed": "off"}},
    )
    points = sampled(space, 500, {"fixed": "on"}.get)
    for point in points:
        assert ("b" in point) == (point["a"] in ("y", "z"))
        assert ("c" in point) == ("b" in point and point["b"] in (10, 30) and point["a"] in ("x", "y"))
        assert ("d" in point) == (point.get("c") == 1)
        assert "e" not in point
    assert {frozenset(point) for point in points} == {
        frozenset(names) for names in (["a"], ["a", "b"], ["a", "b", "c"], ["a", "b", "c", "d"])
    }
    grid = space.grid({"fixed": "on"}.get)
    kinds = {tuple(sorted((path, str(value)) for path, value in point.items())) for point in points}
    assert kinds == {tuple(sorted((path, str(value)) for path, value in point.items())) for point in grid}
    assert len(kinds) == len(grid)


def test_every_corner_has_what_its_conditions_need() -> None:
    space = space_of(
        a={"type": "categorical", "choices": [1, 2]},
        b={"type": "categorical", "choices": [3, 4], "when": {"a": 2}},
        c={"type": "int", "low": 0, "high": 9, "when": {"a": [1, 2], "b": 4}},
        never={"type": "int", "low": 0, "high": 9, "when": {"a": 1, "b": 4}},
        narrowed={"type": "int", "low": 0, "high": 9, "when": {"a": 5}},
    )
    corners = list(space.corners(nothing))
    assert [point for path, _, point in corners if path == "c"] == [{"a": 2, "b": 4, "c": 0}, {"a": 2, "b": 4, "c": 9}]
    assert {path for path, _, _ in corners} == {"a", "b", "c"}
    for path, _, point in corners:
        assert all(space.active(each, point, nothing) for each in point), path


def test_true_is_no_condition_on_one() -> None:
    space = space_of(x={"type": "int", "low": 0, "high": 1, "when": {"n": True}})
    assert not space.active("x", {}, {"n": 1}.get)
    assert space.active("x", {}, {"n": True}.get)


def test_conditions_in_a_circle_are_refused() -> None:
    with pytest.raises(ConfigError, match="circle"):
        space_of(
            a={"type": "int", "low": 0, "high": 1, "when": {"b": 1}},
            b={"type": "int", "low": 0, "high": 1, "when": {"a": 1}},
        )


def test_the_configs_own_values_are_a_point_if_they_lie_inside() -> None:
    space = space_of(x={"type": "int", "low": 0, "high": 3})
    assert space.default_point({"x": 2}.get) == {"x": 2}
    assert space.default_point({"x": 7}.get) is None
    assert space.outside({"x": 7}.get) == {"x": 7}
    assert space.outside({"x": 2}.get) == {}


def test_the_default_point_has_sampled_types_the_constants_and_no_absent_parameter() -> None:
    space = space_of(
        whole={"type": "int", "low": 1, "high": 5},
        real={"type": "float", "low": 0, "high": 5},
        size={"type": "ordinal", "choices": ["s", "m"]},
        fixed={"type": "constant", "value": 3},
        absent={"type": "int", "low": 0, "high": 1, "when": {"size": "m"}},
    )
    point = space.default_point({"whole": 2.0, "real": 4, "size": "s", "fixed": 8, "absent": 99}.get)
    assert point == {"whole": 2, "real": 4.0, "size": "s", "fixed": 3}
    assert type(point["whole"]) is int
    assert type(point["real"]) is float


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ({"x": 9}, r"points\.0\.x=9: must be a whole number between 0 and 3"),
        ({"y": 1}, "no such path"),
        ({"size": "xl"}, r"size='xl': must be one of 's', 'm'"),
        ({"step": 0.6}, r"between 0\.0 and 0\.5 in steps of 0\.25"),
        ({"whole": 0.5}, r"between 0\.0 and 3\.0 in steps of 1"),
        ({"fixed": 4}, "must be 3"),
        ({"size": "s", "deep": 1}, r"deep=1: exists only while size is 'm', and it is 's'"),
        ({"size": "s", "deepest": 1}, r"deepest=1: exists only while size is 'm', and it is 's'"),
    ],
)
def test_a_point_outside_the_space_is_refused_with_what_is_allowed(point: dict[str, Any], words: str) -> None:
    space = space_of(
        x={"type": "int", "low": 0, "high": 3},
        size={"type": "ordinal", "choices": ["s", "m"]},
        step={"type": "float", "low": 0, "high": 0.6, "step": 0.25},
        whole={"type": "float", "low": 0, "high": 3, "step": 1},
        fixed={"type": "constant", "value": 3},
        deep={"type": "int", "low": 0, "high": 1, "when": {"size": "m"}},
        deepest={"type": "int", "low": 0, "high": 1, "when": {"deep": 1}},
    )
    with pytest.raises(ConfigError, match=words):
        check_point(space, point, "points.0", nothing)
    check_point(space, {"x": 3, "deep": 1}, "points.0", nothing)


def test_a_space_is_imported_from_where_the_documents_of_earlier_versions_name_it() -> None:
    from sweeps.space import distributions

    assert distributions.Space is Space
    with pytest.raises(AttributeError, match="has no attribute 'Spaces'"):
        distributions.Spaces  # noqa: B018
