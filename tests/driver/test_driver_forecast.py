"""Forecasts of a sweep that runs, as its driver makes, shows and records them."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from composing import composed_digits
from continuing import ONE_AT_ONCE, SEARCH, wait_for
from records import sweep_record, trial_record
from running import NO_PREFLIGHT, ended, start, verb

from sweeps.config.scaling import MOST_LANES
from sweeps.constants import TAG_FORECAST
from sweeps.driver.early_end import Shutdown
from sweeps.driver.forecaster import Forecaster, search_so_far
from sweeps.driver.sweep_state import SweepState
from sweeps.driver.terminal_view import progress_table, progress_text
from sweeps.driver.trial_status import State, TrialStatus
from sweeps.plan.stage import planned_stages
from sweeps.report.forecast_text import describe_forecast
from sweeps.report.plain_console import plain_console
from sweeps.tracking.forecast_record import Forecast, Interval
from sweeps.tracking.record import SweepTime
from sweeps.tracking.trial_history import Span


def sweep(*overrides: str) -> SweepState:
    return SweepState("digits-1", composed_digits("search.num_trials=20", *overrides), MagicMock(), 2, Shutdown(None))


def trial(number: int, state: State, step: int, seconds: float, value: float | None = None) -> TrialStatus:
    """A trial of 100 steps that has held workers for some seconds."""
    now = time.time()
    ended = None if state == "running" else now
    found = TrialStatus(f"{number:04}", {"train.lr": 0.1}, state, attempt=1, last_step=100, num_workers=2)
    found.spans = [Span(held=now - seconds, trained=now - seconds, ended=ended)]
    if step:
        found.take_step(step, now)
    if value is not None:
        found.values = (value,)
        found.add_point(step, value)
    return found


def add(state: SweepState, *trials: TrialStatus) -> SweepState:
    state.trials |= {each.trial: each for each in trials}
    return state


def six(state: SweepState) -> SweepState:
    return add(state, *(trial(number, "finished", 100, 50.0, 0.5 + number / 10) for number in range(6)))


def expected(state: SweepState) -> Interval:
    """The forecast seconds that a sweep still takes."""
    assert state.forecast is not None
    assert state.forecast.wall_s is not None
    return state.forecast.wall_s


def test_trials_are_as_far_as_their_steps() -> None:
    state = add(
        sweep(),
        trial(0, "finished", 100, 50.0, 0.9),
        trial(1, "pruned", 10, 5.0, 0.4),
        trial(2, "failed", 50, 25.0, 0.95),
        trial(3, "running", 20, 10.0, 0.7),
        TrialStatus("0004", {}),  # suggested, and not started
    )
    found = search_so_far(state)
    assert [(round(each.progress, 2), each.state) for each in found.trials] == [
        (1.0, "ended"),
        (0.1, "ended"),
        (0.5, "ended"),
        (0.2, "running"),
    ]
    assert [round(each.held_s) for each in found.trials] == [50, 5, 25, 10]
    assert (found.to_start, found.places, found.workers, found.gpus) == (16, 2, 2.0, 0.0)


@pytest.mark.parametrize(("trials_per_group", "found"), [("4", 1), ("auto", 4)])
def test_trials_that_share_their_workers_are_forecast_to_hold_their_part_of_them(
    trials_per_group: str, found: int
) -> None:
    state = six(sweep())
    lanes = MOST_LANES if trials_per_group == "auto" else int(trials_per_group)
    state.fit, state.lanes_found = replace(state.fit, lanes=lanes, finds_lanes=trials_per_group == "auto"), found
    for each in state.all_trials:  # of a fixed number, each is recorded to hold its part
        each.needs, each.hourly_cost = {"GPU": 2.0 * found / 4}, 12.0 * found / 4
    so_far = search_so_far(state)
    assert (so_far.workers, so_far.gpus, so_far.hourly_cost) == (0.5, 0.5, 3.0)


def test_a_paused_trial_counts_as_ended() -> None:
    paused = trial(1, "running", 10, 5.0, 0.4)
    paused.spans = [Span(held=0, trained=0, ended=5)]
    (found,) = search_so_far(add(sweep(), paused)).trials
    assert found.state == "ended"  # most paused trials do not go on


@pytest.mark.parametrize("holds", [{"CPU": 2.0}, {}])  # its workers start, or wait for resources
def test_a_trial_that_goes_on_after_a_resume_is_not_over_while_its_workers_start(holds: dict[str, float]) -> None:
    resumed, now = trial(6, "running", 20, 10.0), time.time()
    resumed.spans, resumed.assigned, resumed.holds = [Span(held=now - 90, trained=now - 90, ended=now - 80)], now, holds
    state = add(six(sweep("search.num_trials=7")), resumed)
    Forecaster(state, MagicMock()).look()
    assert expected(state).low > 20  # of 100 steps, 80 are left


def test_a_trial_whose_driver_was_killed_has_held_its_workers_until_then() -> None:
    killed = trial_record(0, 0.5, "running", steps=900, spans=(Span(held=0, trained=10),))
    earlier = sweep_record(status="running", trials=[killed], time=SweepTime(sessions=((0.0, 36_000.0),)))
    state = SweepState("digits-1", composed_digits(), MagicMock(), 2, Shutdown(None), earlier=earlier)
    status = state.trials["0000"]
    status.state = "running"
    assert not status.has_workers
    status.spans.append(Span(held=40_000, trained=40_010))
    status.take_step(910, 40_600)
    assert status.reported == (910, 36_600)


def test_repeats_that_have_ended_are_not_forecast_again() -> None:
    state = six(sweep("search.confirm=3"))
    assert search_so_far(state).repeats == (6, 15)
    repeat = trial(0, "finished", 100, 50.0, 0.9)
    repeat.trial, repeat.repeat_of = "0000r1", "0000"
    assert search_so_far(add(state, repeat)).repeats == (5, 14)
    assert search_so_far(state).to_start == 14


def test_a_budget_bounds_the_forecast() -> None:
    state = six(sweep("search.stop.wall_hours=0.01"))
    state.count_usage()
    assert search_so_far(state).limit_s == pytest.approx(36, abs=1)


def test_the_forecast_is_recorded_shown_and_not_made_again_without_news() -> None:
    state, recorder = six(sweep()), MagicMock()
    forecaster = Forecaster(state, recorder)
    forecaster.look()
    (_, tags), _ = recorder.attach.call_args
    assert Forecast.from_json(json.loads(tags[TAG_FORECAST])) == state.forecast
    assert expected(state).middle == pytest.approx(14 * 50 / 2, rel=0.05)
    forecaster._next_at = 0.0
    forecaster.look()
    assert recorder.attach.call_count == 1
    add(state, trial(6, "finished", 100, 50.0, 0.3))
    forecaster.look()
    assert recorder.attach.call_count == 2
    console = plain_console(width=200, record=True)
    console.print(progress_table(state, progress_text(state), [], 200))
    shown = console.export_text()
    assert " left" in shown.splitlines()[0]
    assert "worker-hours (80% intervals)" in shown


def test_nothing_is_forecast_before_a_trial_has_ended_and_after_the_end() -> None:
    recorder = MagicMock()
    Forecaster(add(sweep(), trial(0, "running", 20, 10.0, 0.7)), recorder).look()
    confirmed = six(sweep())
    confirmed.winner = "0000"
    Forecaster(confirmed, recorder).look()
    assert not recorder.attach.called


def test_a_stage_is_forecast_by_its_own_trials_and_what_follows_is_named() -> None:
    stages = "search.stages=[{overrides: ['train.max_steps=20'], num_trials: 8, keep: 2}]"
    state = sweep(stages)
    (stage,) = planned_stages(state.composition)
    state.stage = stage
    of_stage = [trial(number, "finished", 100, 10.0, 0.5) for number in range(4)]
    for each in of_stage:
        each.trial, each.stage = f"s1-{each.trial}", 1
    said: list[str] = []
    state.announce = said.append  # type: ignore[method-assign]
    forecaster = Forecaster(add(state, *of_stage), MagicMock())
    forecaster.look()
    assert [line.count("forecast: ") for line in said] == [1]
    assert "; 20 trials to follow after stage 1" in said[0]
    found = state.forecast
    assert found is not None
    assert (found.stage, round(expected(state).middle)) == (1, 4 * 10 // 2)
    first, last = describe_forecast(found)
    assert " left of stage 1; " in first
    assert last.startswith("forecast: 20 trials to follow after stage 1")
    assert Forecast.from_json(json.loads(json.dumps(found.as_json()))) == found
    state.stage, forecaster._next_at = None, 0.0
    forecaster.look()
    assert state.forecast is None, "no trial of the search has ended"
    forecaster._next_at = 0.0
    six(state)
    forecaster.look()
    assert state.forecast is not None
    assert (state.forecast.stage, state.forecast.wall_s is None) == (None, False)


def test_logs_have_the_forecast_in_one_line_until_the_expected_time_changes_by_a_fifth() -> None:
    state = six(sweep())
    forecaster = Forecaster(state, MagicMock())

    def lines_after(*ended: TrialStatus) -> list[str]:
        add(state, *ended)
        forecaster._next_at = 0.0
        forecaster.look()
        return [call.args[1] for call in state.view.event.call_args_list]  # type: ignore[attr-defined]

    (line,) = lines_after()
    assert line.startswith("forecast: ")
    for number in range(6, 12):  # past half of the trials
        state._usage.used.wall_s += 25
        assert len(lines_after(trial(number, "finished", 100, 50.0, 0.3))) == 1
    assert len(lines_after(*(trial(number, "finished", 100, 500.0, 0.3) for number in range(12, 15)))) == 2


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_running_sweep_shows_its_forecast_and_the_next_one_is_estimated_from_it(tmp_path: Path) -> None:
    longer = ("search.num_trials=10", "train.max_steps=1500", "train.eval_every=100", NO_PREFLIGHT)
    command = ("run", *SEARCH, *longer, *ONE_AT_ONCE, "--name=forecast", "tracking.report=false")
    process = start(tmp_path, *command)

    def is_forecast(record: Any) -> bool:
        return record.forecast is not None and record.forecast.wall_s is not None

    wait_for(tmp_path, "forecast", is_forecast, process, within_s=400)
    document = verb(tmp_path, "show", "forecast", "--json").document
    if document["status"] == "running":  # it may have ended meanwhile
        found = document["forecast"]
        assert 0 <= found["wall_s"]["low"] <= found["wall_s"]["middle"] <= found["wall_s"]["high"]
        assert found["worker_hours"]["high"] > 0
    assert "worker-hours (80% intervals)" in ended(tmp_path, process, within_s=400).err
    document = verb(tmp_path, "show", "forecast", "--json").document
    assert "forecast" not in document
    planned = verb(tmp_path, *command[:-2], "--name=next", "--dry-run", "--json").document["expected"]
    assert planned["sweeps"] == ["forecast"]
    assert 0.3 < planned["wall_s"][0] / document["time"]["wall_s"] < 2
