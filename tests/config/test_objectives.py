"""Several objectives, against brute force."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from composing import composed

from sweeps.config.objectives import Objectives, Values
from sweeps.config.search import Limit
from sweeps_train.config import EstimatorConfig, FunctionConfig


def dominates(one: Values, other: Values, modes: tuple[str, ...]) -> bool:
    signs = [1 if mode == "min" else -1 for mode in modes]
    pairs = [(sign * a, sign * b) for sign, a, b in zip(signs, one, other, strict=True)]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


@pytest.mark.parametrize("modes", [*itertools.product(("min", "max"), repeat=2), ("min", "max", "min")])
def test_the_front_is_what_nothing_dominates(modes):
    rng = random.Random(0)
    objectives = Objectives(tuple("abc"[: len(modes)]), modes)
    values = {key: tuple(rng.randint(0, 9) / 1 for _ in modes) for key in range(60)}
    expected = {
        values[key] for key in values if not any(dominates(other, values[key], modes) for other in values.values())
    }
    front = objectives.front(values)
    assert {values[key] for key in front} == expected
    assert len(front) == len(expected)  # of equal ones the first
    first = [values[key][0] for key in front]
    assert first == sorted(first, reverse=modes[0] == "max")


def test_the_front_of_one_objective_is_the_first_of_the_best():
    assert Objectives(("a",), ("max",)).front({"x": (1.0,), "y": (3.0,), "z": (3.0,)}) == ["y"]


def test_a_report_counts_only_with_all_objectives_finite():
    objectives = Objectives(("a", "b"), ("min", "max"))
    assert objectives.values({"a": 1.0, "b": 2.0, "c": 3.0}) == (1.0, 2.0)
    assert objectives.values({"a": 1.0}) is None
    assert objectives.values({"a": 1.0, "b": math.nan}) is None
    assert objectives.values({"a": math.inf, "b": 1.0}) is None


def test_a_report_improves_by_the_first_objective_and_of_equal_ones_by_the_second():
    objectives = Objectives(("a", "b"), ("max", "min"))
    assert objectives.improves((1.0, 5.0), None)
    assert objectives.improves((2.0, 9.0), (1.0, 5.0))
    assert objectives.improves((1.0, 1.0), (1.0, 5.0))
    assert not objectives.improves((1.0, 5.0), (1.0, 5.0))
    assert not objectives.improves((0.9, 1.0), (1.0, 5.0))


def test_limits_are_allowed_values_and_nan_breaks_them():
    objectives = Objectives(("a",), ("min",), {"m": Limit(max=10), "s": Limit(min=2)})
    assert objectives.violation({"m": 10.0, "s": 2.0}) is None
    assert objectives.violation({}) is None
    assert objectives.violation({"m": 10.5}) == "m=10.5 is above its limit of 10"
    assert objectives.violation({"s": 1.0}) == "s=1 is below its limit of 2"
    assert objectives.violation({"m": math.nan}) is not None


@pytest.mark.parametrize("conf", ["estimator", "ray_train_function"])
def test_workers_know_which_metrics_the_search_reads_in_each_report(conf: str) -> None:
    composition = composed(conf, "search.limits={system/memory_mib: {max: 2000}}")
    training = composition.config.training()
    assert isinstance(training, EstimatorConfig | FunctionConfig)
    of_code = composition.config.search.metrics if conf == "ray_train_function" else ()
    assert training.needed == [*of_code, "system/memory_mib"]
