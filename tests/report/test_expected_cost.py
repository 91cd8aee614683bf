"""Expected time and money of a planned sweep, by earlier sweeps of the same config."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from records import sweep_record, trial_record

from sweeps.config.search import Cost, Stop
from sweeps.plan.plan import make_plan
from sweeps.report.expected_cost import (
    PastSweep,
    Workload,
    cost_by_earlier_sweeps,
    expected_cost,
    past_of,
    workload_of,
)
from sweeps.report.held_workers import worker_hours
from sweeps.tracking.record import SweepTime
from sweeps.tracking.spans import Span, from_text, to_text

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


def test_gpu_hours_are_those_that_all_trials_hold() -> None:
    expected = expected_cost(WORK, [PAST])
    assert expected is not None
    assert expected.gpu_hours == (12 * 30 / 3600, 12 * 30 / 3600)
    no_gpu = expected_cost(replace(WORK, per_trial={"CPU": 2.0}), [PAST])
    assert no_gpu is not None
    assert no_gpu.gpu_hours is None
    limited = expected_cost(replace(WORK, stop=Stop(gpu_hours=0.01)), [PAST])
    assert limited is not None
    assert limited.gpu_hours == (0.01, 0.01)


def test_repeats_of_the_best_are_whole_trainings_after_the_search() -> None:
    confirmed = expected_cost(replace(WORK, repeats=(4, 10)), [replace(PAST, whole_s=90.0)])
    assert confirmed is not None
    assert confirmed.wall_s == pytest.approx((120.0 + 4 * 90 / 3, 120.0 + 10 * 90 / 3))
    assert confirmed.gpu_hours == pytest.approx(((360 + 360) / 3600, (360 + 900) / 3600))
    plan = make_plan(["conf=digits", "cluster.num_cpus=4", "search.confirm=3"], [], None, "")
    assert workload_of(plan).repeats == (6, 15)


def test_the_repeats_of_an_earlier_sweep_are_not_also_time_of_its_search() -> None:
    trials = [trial_record(number, 0.5, started=10.0 * number, ended=10.0 * (number + 1)) for number in range(4)]
    repeats = [
        trial_record(f"0000r{n}", 0.5, repeat_of="0000", started=40.0 + 10 * n, ended=50.0 + 10 * n) for n in range(6)
    ]
    past = past_of(sweep_record(trials=trials, repeats=repeats, time=SweepTime(wall_s=100.0)))
    assert past is not None
    assert past.wall_s == pytest.approx(40.0)
    again = expected_cost(replace(WORK, trials=4, steps=None, concurrent=None, repeats=(6, 15)), [past])
    assert again is not None
    assert again.wall_s == pytest.approx((100.0, 190.0))


def test_a_trial_does_not_cost_the_time_in_which_its_scheduler_paused_it() -> None:
    spans = tuple(Span(held=at, trained=at + 1, ended=at + 10, workers=("a",)) for at in (0.0, 90.0))
    paused = trial_record(0, 0.5, started=0.0, ended=100.0, spans=spans)
    past = past_of(sweep_record(trials=[paused], time=SweepTime(wall_s=100.0)))
    assert past is not None
    assert (past.trial_s, past.whole_s) == (20.0, 20.0)


@pytest.mark.parametrize(("number", "attempts", "held_s"), [(2, 3, 20.0), (200, 200, 2000.0)])
def test_periods_that_did_not_fit_into_the_tag_count_as_long_as_the_others(
    number: int, attempts: int, held_s: float
) -> None:
    spans = [Span(held=90.0 * at, trained=90.0 * at + 1, ended=90.0 * at + 10, workers=("a",)) for at in range(number)]
    recorded = from_text(to_text(spans))
    assert (len(recorded) < number) == (number == 200)
    trial = trial_record(0, 0.5, started=0.0, ended=90.0 * number, spans=recorded, attempts=attempts)
    record = sweep_record(trials=[trial], time=SweepTime(wall_s=90.0 * number))
    past = past_of(record)
    assert past is not None
    assert past.trial_s == pytest.approx(held_s)
    assert worker_hours(record, trial) == pytest.approx(held_s / 3600)


def test_an_estimate_in_words_names_the_sweeps_it_is_from() -> None:
    expected = expected_cost(WORK, [PAST, replace(PAST, sweep="second", trial_s=60.0)])
    assert expected is not None
    assert expected.describe() == "about 2m 00s to 4m 00s, 0.1 to 0.2 GPU-hours, as first, second took"


def test_a_dry_run_without_an_earlier_sweep_says_what_is_missing(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    plan = make_plan(["conf=digits", "cluster.num_cpus=4", f"tracking.uri={uri}"], [], None, "")
    expected, words = cost_by_earlier_sweeps(plan)
    assert expected is None
    assert words.startswith(
        f"unknown: no sweep of conf=digits has ended in {uri}; measure one trial with search.num_trials=1"
    )
    assert not (tmp_path / "mlflow.db").exists()  # to look starts nothing


def test_stages_add_the_work_of_their_trials_in_proportion_to_their_steps() -> None:
    staged = replace(WORK, stages=(replace(WORK, trials=20, steps=50.0),))
    expected = expected_cost(staged, [PAST])
    assert expected is not None
    assert expected.wall_s == (120.0 + 20 * 30 / 4 / 3, 120.0 + 20 * 30 / 4 / 3)
    assert [each.wall_s for each in expected.stages] == [(50.0, 50.0)]
    assert expected.describe() == "about 2m 50s, 0.142 GPU-hours, 50s of it for stage 1, as first took"
    stages = "search.stages=[{overrides: ['train.max_steps=50'], num_trials: 20}]"
    work = workload_of(make_plan(["conf=digits", "train.max_steps=200", "cluster.num_cpus=4", stages], [], None, ""))
    assert [(each.trials, each.steps, each.stages) for each in work.stages] == [(20, 50, ())]
    assert (work.trials, work.steps) == (16, 200)
