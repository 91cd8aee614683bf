"""Expected time and money of a planned sweep, by earlier sweeps of the same config."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweeps.config.search import Cost, Stop
from sweeps.plan.plan import make_plan
from sweeps.report.expected_cost import PastSweep, Workload, expected_cost, workload_of

WORK = Workload(
    trials=12,
    steps=200.0,
    epochs=None,
    num_workers=2,
    per_trial={"CPU": 2.0, "GPU": 1.0},
    concurrent=3,
    stop=Stop(),
)
PAST = PastSweep(sweep="first", trials=10, trial_s=30.0, wall_s=150.0, steps=200)


def test_without_earlier_sweeps_nothing_is_expected() -> None:
    assert expected_cost(WORK, []) is None


def test_time_follows_from_the_trials_of_earlier_sweeps_and_from_how_many_run_at_a_time() -> None:
    slower = replace(PAST, sweep="second", trial_s=60.0)
    expected = expected_cost(WORK, [PAST, slower])
    assert expected is not None
    assert expected.wall_s == (12 * 30 / 3, 12 * 60 / 3)
    assert expected.sweeps == ["first", "second"]


def test_longer_trials_take_longer() -> None:
    expected = expected_cost(replace(WORK, steps=400.0), [PAST])
    assert expected is not None
    assert expected.wall_s == (240.0, 240.0)


def test_where_only_the_cluster_knows_how_many_run_at_a_time_it_is_as_before() -> None:
    expected = expected_cost(replace(WORK, concurrent=None), [PAST])
    assert expected is not None
    assert expected.wall_s == (180.0, 180.0)


def test_money_follows_from_the_prices_and_ends_at_the_budget() -> None:
    assert expected_cost(WORK, [PAST]).cost is None  # type: ignore[union-attr]
    stop = Stop(cost=Cost(limit=100.0, per_cpu_hour=0.5, per_gpu_hour=9.0))
    expected = expected_cost(replace(WORK, stop=stop, hourly_cost=10.0), [PAST])
    assert expected is not None
    assert expected.cost is not None
    assert expected.cost[0] == pytest.approx(12 * 30 / 3600 * 10)
    little = replace(WORK, stop=replace(stop, cost=Cost(limit=0.25, per_gpu_hour=9.0)), hourly_cost=9.0)
    assert expected_cost(little, [PAST]).cost == (0.25, 0.25)  # type: ignore[union-attr]


def test_a_trial_costs_what_it_does_in_the_dearest_of_its_pools() -> None:
    pools = "scaling.pools={a: {per_cpu_hour: 2}}"
    plan = make_plan(["conf=digits", "cluster.num_cpus=4", pools], [], None, "")
    assert workload_of(plan).hourly_cost == 2 * 2


def test_a_budget_of_hours_ends_the_time() -> None:
    expected = expected_cost(replace(WORK, stop=Stop(wall_hours=0.01)), [PAST])
    assert expected is not None
    assert expected.wall_s == (36.0, 36.0)


def test_the_work_of_a_plan_is_that_of_its_config() -> None:
    plan = make_plan(["conf=digits", "train.max_steps=50", "cluster.num_cpus=4"], [], None, "")
    work = workload_of(plan)
    assert (work.trials, work.steps, work.num_workers, work.per_trial) == (16, 50, 2, {"CPU": 2.0})
    assert (work.concurrent, work.hourly_cost) == (2, None)
