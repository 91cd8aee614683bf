"""Expected time and money of a planned sweep, by earlier sweeps of the same config."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from records import sweep_record, trial_record

from sweeps.config.search import Cost, Stop
from sweeps.constants import TAG_LANES
from sweeps.plan.plan import make_plan
from sweeps.report.expected_cost import (
    ExpectedCost,
    PastSweep,
    Workload,
    cost_by_earlier_sweeps,
    expected_cost,
    past_of,
    workload_of,
)
from sweeps.report.held_workers import worker_hours
from sweeps.tracking.record import SweepTime
from sweeps.tracking.trial_history import Span, spans_as_json
from sweeps.tracking.values import read_list

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
SLOWER = replace(PAST, sweep="second", trial_s=60.0)


def expected(*past: PastSweep, **changes: Any) -> ExpectedCost:
    found = expected_cost(replace(WORK, **changes), past or [PAST])
    assert found is not None
    return found


def planned(*tokens: str) -> Workload:
    return workload_of(make_plan(["conf=digits", "cluster.num_cpus=4", *tokens], [], None, ""))


def test_without_earlier_sweeps_nothing_is_expected() -> None:
    assert expected_cost(WORK, []) is None


def test_time_follows_from_the_trials_of_earlier_sweeps_and_from_how_many_run_at_a_time() -> None:
    found = expected(PAST, SLOWER)
    assert found.wall_s == (12 * 30 / 3, 12 * 60 / 3)
    assert found.sweeps == ["first", "second"]
    assert found.describe() == "about 2m 00s to 4m 00s, 0.1 to 0.2 GPU-hours, as first, second took"


@pytest.mark.parametrize(
    ("changes", "wall_s"),
    [
        ({"steps": 400.0}, 240.0),  # longer trials
        ({"concurrent": None}, 180.0),  # only the cluster knows how many run at a time: as many as before
        ({"stop": Stop(wall_hours=0.01)}, 36.0),
    ],
)
def test_time_follows_from_the_steps_the_cluster_and_the_budget(changes: dict[str, Any], wall_s: float) -> None:
    assert expected(**changes).wall_s == (wall_s, wall_s)


def test_money_follows_from_the_prices_and_ends_at_the_budget() -> None:
    assert expected().cost is None
    stop = Stop(cost=Cost(limit=100.0, per_cpu_hour=0.5, per_gpu_hour=9.0))
    assert expected(stop=stop, hourly_cost=10.0).cost == pytest.approx((12 * 30 / 3600 * 10,) * 2)
    little = replace(stop, cost=Cost(limit=0.25, per_gpu_hour=9.0))
    assert expected(stop=little, hourly_cost=9.0).cost == (0.25, 0.25)


def test_the_work_of_a_plan_is_that_of_its_config_in_the_dearest_of_its_pools() -> None:
    work = planned("train.max_steps=50")
    assert (work.trials, work.steps, work.num_workers, work.per_trial) == (16, 50, 2, {"CPU": 2.0})
    assert (work.concurrent, work.hourly_cost) == (2, None)
    assert planned("scaling.pools={a: {per_cpu_hour: 2}}").hourly_cost == 2 * 2


def test_gpu_hours_are_those_that_all_trials_hold() -> None:
    assert expected().gpu_hours == (12 * 30 / 3600, 12 * 30 / 3600)
    assert expected(per_trial={"CPU": 2.0}).gpu_hours is None
    assert expected(stop=Stop(gpu_hours=0.01)).gpu_hours == (0.01, 0.01)


def test_trials_that_share_workers_are_expected_to_hold_the_part_that_was_found() -> None:
    work = workload_of(
        make_plan(["conf=llm_lora", "cluster.num_cpus=4", "scaling.trials_per_group=auto"], [], None, "")
    )
    assert (work.concurrent, work.finds_lanes) == (None, True)
    times, tags = SweepTime(wall_s=30.0), {TAG_LANES: "4 trials a worker group: 8 were not faster"}
    trials = [trial_record(number, 0.5, started=0.0, ended=30.0) for number in range(4)]
    past = past_of(sweep_record(trials=trials, time=times, tags=tags))
    assert past is not None
    shared = expected(past, trials=4, steps=None, concurrent=None, finds_lanes=True, hourly_cost=10.0)
    assert shared.wall_s == (30.0, 30.0)
    assert shared.gpu_hours == pytest.approx((30 / 3600,) * 2)
    assert shared.cost == pytest.approx((30 / 3600 * 10,) * 2)


def test_repeats_of_the_best_are_whole_trainings_after_the_search() -> None:
    confirmed = expected(replace(PAST, whole_s=90.0), repeats=(4, 10))
    assert confirmed.wall_s == pytest.approx((120.0 + 4 * 90 / 3, 120.0 + 10 * 90 / 3))
    assert confirmed.gpu_hours == pytest.approx(((360 + 360) / 3600, (360 + 900) / 3600))
    assert planned("search.confirm=3").repeats == (6, 15)


def test_the_repeats_of_an_earlier_sweep_are_not_also_time_of_its_search() -> None:
    trials = [trial_record(number, 0.5, started=10.0 * number, ended=10.0 * (number + 1)) for number in range(4)]
    repeats = [
        trial_record(f"0000r{n}", 0.5, repeat_of="0000", started=40.0 + 10 * n, ended=50.0 + 10 * n) for n in range(6)
    ]
    past = past_of(sweep_record(trials=trials, repeats=repeats, time=SweepTime(wall_s=100.0)))
    assert past is not None
    assert past.wall_s == pytest.approx(40.0)
    again = expected(past, trials=4, steps=None, concurrent=None, repeats=(6, 15))
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
    recorded = read_list(spans_as_json(spans), Span.from_json)
    assert (len(recorded) < number) == (number == 200)
    trial = trial_record(0, 0.5, started=0.0, ended=90.0 * number, spans=recorded, attempts=attempts)
    record = sweep_record(trials=[trial], time=SweepTime(wall_s=90.0 * number))
    past = past_of(record)
    assert past is not None
    assert past.trial_s == pytest.approx(held_s)
    assert worker_hours(record, trial) == pytest.approx(held_s / 3600)


def test_a_dry_run_without_an_earlier_sweep_says_what_is_missing(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    plan = make_plan(["conf=digits", "cluster.num_cpus=4", f"tracking.uri={uri}"], [], None, "")
    found, words = cost_by_earlier_sweeps(plan)
    assert found is None
    assert words.startswith(
        f"unknown: no sweep of conf=digits has ended in {uri}; measure one trial with search.num_trials=1"
    )
    assert not (tmp_path / "mlflow.db").exists()  # to look starts nothing


def test_stages_add_the_work_of_their_trials_in_proportion_to_their_steps() -> None:
    found = expected(stages=(replace(WORK, trials=20, steps=50.0),))
    assert found.wall_s == (120.0 + 20 * 30 / 4 / 3, 120.0 + 20 * 30 / 4 / 3)
    assert [each.wall_s for each in found.stages] == [(50.0, 50.0)]
    assert found.describe() == "about 2m 50s, 0.142 GPU-hours, 50s of it for stage 1, as first took"
    work = planned("train.max_steps=200", "search.stages=[{overrides: ['train.max_steps=50'], num_trials: 20}]")
    assert [(each.trials, each.steps, each.stages) for each in work.stages] == [(20, 50, ())]
    assert (work.trials, work.steps) == (16, 200)
