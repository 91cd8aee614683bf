"""The space: bounds at both ends, conditions, grids, points."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from pydantic import TypeAdapter

from sweeps.config.space import Distribution
from sweeps.errors import ConfigError
from sweeps.space import Space, check_point, contains

READ: TypeAdapter[dict[str, Distribution]] = TypeAdapter(dict[str, Distribution])


def space_of(**distributions: dict[str, Any]) -> Space:
    return Space(READ.validate_python({name.replace("__", "."): value for name, value in distributions.items()}))


def nothing(path: str) -> Any:
    return None


def sampled(space: Space, count: int = 200) -> list[dict[str, Any]]:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    return [space.sample(study.ask(), nothing) for _ in range(count)]


@pytest.mark.parametrize(
    ("distribution", "ends", "outside"),
    [
        ({"type": "int", "low": 2, "high": 5}, {2, 5}, [1, 6, 2.5, True]),
        ({"type": "int", "low": 2, "high": 9, "step": 3}, {2, 8}, [3, 9]),
        ({"type": "int", "low": 1, "high": 4, "log": True}, {1, 4}, [0, 5]),
        ({"type": "float", "low": 0.0, "high": 0.5, "step": 0.25}, {0.0, 0.5}, [0.1, 0.75]),
        ({"type": "float", "low": 0.0, "high": 0.6, "step": 0.25}, {0.0, 0.5}, [0.6]),
        ({"type": "categorical", "choices": [True, 2, "1", None]}, {True, 2, "1", None}, [0, "2", False, 1]),
    ],
)
def test_both_ends_are_sampled_and_nothing_outside(
    distribution: dict[str, Any], ends: set[Any], outside: list[Any]
) -> None:
    space = space_of(x=distribution)
    values = [point["x"] for point in sampled(space)]
    assert ends <= set(values)
    assert all(contains(space["x"], value) for value in values)
    assert not any(contains(space["x"], value) for value in outside)


@pytest.mark.parametrize("log", [False, True])
def test_a_real_range_contains_both_of_its_ends(log: bool) -> None:
    space = space_of(x={"type": "float", "low": 1e-4, "high": 1e-2, "log": log})
    assert contains(space["x"], 1e-4)
    assert contains(space["x"], 1e-2)
    assert all(1e-4 <= point["x"] <= 1e-2 for point in sampled(space))


def test_choices_that_are_lists_come_back_as_lists() -> None:
    space = space_of(x={"type": "categorical", "choices": [["q", "v"], "all", {"a": 1}]})
    values = [point["x"] for point in sampled(space, 30)]
    assert ["q", "v"] in values
    assert {"a": 1} in values


def test_a_parameter_exists_only_while_its_conditions_hold() -> None:
    space = space_of(
        momentum={"type": "float", "low": 0.8, "high": 0.9, "when": {"optimizer": ["sgd", "nag"]}},
        nesterov={"type": "categorical", "choices": [True, False], "when": {"momentum": 0.8, "optimizer": "sgd"}},
        optimizer={"type": "categorical", "choices": ["sgd", "nag", "adam"]},
    )
    for point in sampled(space):
        assert ("momentum" in point) == (point["optimizer"] != "adam")
        assert "nesterov" not in point or point["optimizer"] == "sgd"


def test_a_condition_on_what_is_not_searched_looks_into_the_config() -> None:
    space = space_of(x={"type": "int", "low": 0, "high": 1, "when": {"model": "conv_net"}})
    assert space.active("x", {}, {"model": "conv_net"}.get)
    assert not space.active("x", {}, {"model": "other"}.get)


def test_conditions_in_a_circle_are_refused() -> None:
    with pytest.raises(ConfigError, match="circle"):
        space_of(
            a={"type": "int", "low": 0, "high": 1, "when": {"b": 1}},
            b={"type": "int", "low": 0, "high": 1, "when": {"a": 1}},
        )


def test_a_grid_has_every_point_once_and_respects_conditions() -> None:
    space = space_of(
        kind={"type": "categorical", "choices": ["a", "b"]},
        n={"type": "int", "low": 1, "high": 5, "step": 2, "when": {"kind": "a"}},
        x={"type": "float", "low": 0.0, "high": 0.5, "step": 0.5},
    )
    points = space.grid(nothing)
    assert len(points) == (3 + 1) * 2
    assert len({tuple(sorted(point.items())) for point in points}) == len(points)
    assert all(("n" in point) == (point["kind"] == "a") for point in points)


def test_a_grid_needs_a_step_for_real_values() -> None:
    with pytest.raises(ConfigError, match="step"):
        space_of(x={"type": "float", "low": 0, "high": 1}).grid(nothing)


def test_the_configs_own_values_are_a_point_if_they_lie_inside() -> None:
    space = space_of(x={"type": "int", "low": 0, "high": 3})
    assert space.default_point({"x": 2}.get) == {"x": 2}
    assert space.default_point({"x": 7}.get) is None


def test_a_point_outside_the_space_is_refused_with_what_is_allowed() -> None:
    space = space_of(x={"type": "int", "low": 0, "high": 3})
    with pytest.raises(ConfigError, match=r"points\.0\.x=9.*between \[0, 3\]"):
        check_point(space, {"x": 9}, "points.0")
    with pytest.raises(ConfigError, match="no such path"):
        check_point(space, {"y": 1}, "points.0")
