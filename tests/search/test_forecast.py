"""Forecasts of a search: what the rest takes."""

from __future__ import annotations

from typing import Any

import pytest

from sweeps.search.forecast.remaining_work import Course, SearchSoFar
from sweeps.search.forecast.search_forecast import forecast
from sweeps.tracking.forecast_record import Forecast, Interval

WHOLE = Course(progress=1.0, held_s=60.0, state="ended")


def stopped(progress: float) -> Course:
    return Course(progress=progress, held_s=60.0 * progress, state="ended")


def search(trials: list[Course], **changes: Any) -> SearchSoFar:
    return SearchSoFar(**{"trials": trials, "to_start": 8, "places": 2, **changes})


def wall(found: Forecast) -> Interval:
    assert found.wall_s is not None
    return found.wall_s


def test_equal_trials_take_as_long_as_those_before_them() -> None:
    found = forecast(search([WHOLE] * 8, workers=3.0, gpus=3.0, hourly_cost=6.0))
    assert wall(found).low < 240 < wall(found).high < 260
    assert wall(found).middle == pytest.approx(240)
    assert found.worker_hours is not None
    assert found.worker_hours.middle == pytest.approx(8 * 60 * 3 / 3600)
    assert found.gpu_hours == found.worker_hours
    assert found.cost is not None
    assert found.cost.middle == pytest.approx(8 * 60 * 6 / 3600)


def test_trials_that_run_are_not_taken_for_ended_ones() -> None:
    """Early in a search most that have ended were stopped; the long ones still run."""
    early = [stopped(0.1)] * 6
    running = [Course(progress=0.6, held_s=36.0, state="running")] * 2
    assert wall(forecast(search([*early, *running]))).high > 8 * 6 / 2 * 2


def test_stopped_trials_shorten_the_rest() -> None:
    without = wall(forecast(search([WHOLE] * 8)))
    with_stops = wall(forecast(search([WHOLE] * 4 + [stopped(0.1)] * 12)))
    assert with_stops.middle < 0.7 * without.middle


def test_more_places_finish_sooner_with_the_same_work() -> None:
    trials = [WHOLE] * 8
    two, eight = forecast(search(trials)), forecast(search(trials, places=8))
    assert wall(eight).middle == pytest.approx(wall(two).middle / 4)
    assert eight.worker_hours == two.worker_hours


def test_the_budget_bounds_the_rest() -> None:
    found = forecast(search([WHOLE] * 8, limit_s=90.0))
    assert wall(found).high <= 90.0
    assert found.worker_hours is not None
    assert found.worker_hours.middle == pytest.approx(2 * 90 / 3600)


def test_repeats_come_after_the_search() -> None:
    trials = [WHOLE] * 8
    found = wall(forecast(search(trials, repeats=(4, 10))))
    assert 240 < found.low < 240 + 2 * 60 <= found.middle <= 240 + 5 * 60 < found.high
    assert wall(forecast(search(trials, to_start=0, repeats=(4, 4)))).middle == pytest.approx(120)


def test_startup_counts_once_for_each_trial() -> None:
    slow_start = [Course(progress=1.0, held_s=100.0, first=(0.5, 70.0), state="ended")] * 8
    assert wall(forecast(search(slow_start))).middle == pytest.approx(400)
    stopped_early = Course(progress=0.5, held_s=70.0, first=(0.5, 70.0), state="ended")
    found = wall(forecast(search([*slow_start, stopped_early], to_start=1, places=1)))
    assert found.high <= 106  # and not the 140 s to which 70 s for a half would come


def test_nothing_is_made_up_before_a_trial_has_ended() -> None:
    found = forecast(search([Course(progress=0.2, held_s=5.0, state="running")]))
    assert found.wall_s is None
    assert found.missing == ("no trial has ended yet",)


def test_trials_that_count_their_seconds_need_no_length() -> None:
    trials = [Course(progress=s, held_s=s, state="ended") for s in (10.0, 20.0, 30.0, 20.0, 10.0, 30.0)]
    found = wall(forecast(search(trials, knows_length=False, to_start=6, places=1)))
    assert 60 < found.low < 120 < found.high < 240


def test_a_forecast_survives_its_record_and_runs_down() -> None:
    found = forecast(search([WHOLE] * 8))
    assert Forecast.from_json(found.as_json()) == found
    assert wall(found.after(100)).middle == pytest.approx(140)
    assert wall(found.after(1e6)) == (0, 0, 0)


def test_a_large_search_is_forecast_in_a_moment() -> None:
    trials = [stopped(0.1 + 0.01 * (n % 80)) for n in range(1000)]
    found = forecast(search(trials, to_start=2000, places=200))
    assert wall(found).low > 0
