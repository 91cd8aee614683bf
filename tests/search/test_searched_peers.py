"""Searches of other libraries search in the benchmark as they should; in ``.venv/peers`` alone. Slow ones
run there with ``-m "slow or not slow"``."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from search_problems import hartmann_problems
from searched.axes import axes, to_point
from searched.methods import INSTALL, PEERS, installed, searched_by
from searched.peer import rung_progress, top_rung

from sweeps.config.space import CategoricalDistribution, FloatDistribution, OrdinalDistribution
from sweeps.space.distributions import contains
from sweeps.space.space import Space

SLOW = {"syne tune dyhpo", "syne tune mobster", "smac", "hebo"}
NAMES = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in PEERS]

pytestmark = pytest.mark.filterwarnings("default")  # theirs


@pytest.fixture
def conditional() -> Space:
    return Space(
        {
            "optimizer": CategoricalDistribution(type="categorical", choices=["sgd", "adamw"]),
            "momentum": FloatDistribution(type="float", low=0.0, high=0.9, when={"optimizer": "sgd"}),
            "lr": FloatDistribution(type="float", low=1e-4, high=1.0, log=True),
            "width": OrdinalDistribution(type="ordinal", choices=[8, 32, 96]),
        }
    )


def test_values_of_a_library_become_a_point_without_parameters_that_do_not_exist(conditional: Space) -> None:
    raw: dict[str, Any] = {"optimizer": 1, "momentum": 0.5, "lr": 0.1, "width": 2}
    assert to_point(conditional, raw) == {"optimizer": "adamw", "lr": 0.1, "width": 96}
    assert to_point(conditional, raw | {"optimizer": 0})["momentum"] == 0.5
    assert {axis.path: axis.kind for axis in axes(conditional)}["width"] == "int"


def test_the_highest_rung_is_the_end_of_a_training() -> None:
    assert (top_rung(100), top_rung(81), top_rung(27)) == (81, 81, 27)
    assert [rung_progress(each, 100) for each in (1, 80, 81, 99, 100)] == [1, 80, 80, 80, 81]


@pytest.mark.parametrize("name", NAMES)
def test_it_searches_inside_the_space_within_its_time(name: str) -> None:
    if not installed(name):
        pytest.skip(f"{PEERS[name].package} is not installed: {INSTALL}")
    problem = hartmann_problems()[0]
    # Seed 1: with seed 0 the first four trials of Syne Tune's ASHA are all among the best at every rung, by chance.
    outcome, points = searched_by(name)(problem, 1, 4, 100.0)
    assert len(points) >= 2
    assert all(contains(problem.space[path], point[path]) for point in points.values() for path in problem.space)
    steps: dict[int, list[int]] = {}
    for report in outcome.reports:
        assert report.time_s <= 100.0
        steps.setdefault(report.trial, []).append(report.step)
    assert all(made == list(range(1, len(made) + 1)) for made in steps.values())  # a trial goes on where it was
    if name == "hebo":
        return
    ends = Counter(len(made) for made in steps.values())
    assert ends[1] + ends[3] >= 2  # some are stopped or paused at the first rungs,
    assert max(ends) > 3  # and some continue
    assert len(points) > 4


@pytest.mark.parametrize("name", NAMES)
def test_it_suggests_points_of_a_space_with_conditions(name: str, conditional: Space) -> None:
    if not installed(name):
        pytest.skip(f"{PEERS[name].package} is not installed: {INSTALL}")
    peer = PEERS[name].make(conditional, 0, 27)
    for _ in range(6):
        job = peer.next()
        assert job is not None
        assert all(contains(conditional[path], value) for path, value in job.point.items())
        assert ("momentum" in job.point) == (job.point["optimizer"] == "sgd")
