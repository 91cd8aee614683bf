"""Forecasts of a search: what the rest takes, and how much better it becomes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sweeps.search.forecast.remaining_work import Course
from sweeps.search.forecast.search_forecast import SearchSoFar, forecast
from sweeps.tracking.forecast_record import Forecast, Interval


def whole(loss: float, seconds: float = 60.0) -> Course:
    return Course(progress=1.0, held_s=seconds, state="ended", loss=loss, curve=[(0.5, loss + 0.1), (1.0, loss)])


def stopped(progress: float, loss: float) -> Course:
    return Course(progress=progress, held_s=60.0 * progress, state="ended", loss=loss, curve=[(progress, loss)])


def search(trials: list[Course], **changes: Any) -> SearchSoFar:
    return SearchSoFar(**{"trials": trials, "to_start": 8, "places": 2, "metric": "eval/loss", **changes})


def wall(found: Forecast) -> Interval:
    assert found.wall_s is not None
    return found.wall_s


def test_equal_trials_take_as_long_as_those_before_them() -> None:
    found = forecast(search([whole(1 / n) for n in range(1, 9)], workers=3.0, gpus=3.0, hourly_cost=6.0))
    assert wall(found).low < 240 < wall(found).high < 260
    assert wall(found).middle == pytest.approx(240)
    assert found.worker_hours is not None
    assert found.worker_hours.middle == pytest.approx(8 * 60 * 3 / 3600)
    assert found.gpu_hours == found.worker_hours
    assert found.cost is not None
    assert found.cost.middle == pytest.approx(8 * 60 * 6 / 3600)


def test_trials_that_run_are_not_taken_for_ended_ones() -> None:
    """Early in a search most that have ended were stopped; the long ones still run."""
    early = [stopped(0.1, 1.0 + n / 10) for n in range(6)]
    running = [Course(progress=0.6, held_s=36.0, state="running", loss=0.5 + n / 10) for n in range(2)]
    assert wall(forecast(search([*early, *running]))).high > 8 * 6 / 2 * 2


def test_stopped_trials_shorten_the_rest() -> None:
    without = wall(forecast(search([whole(1 / n) for n in range(1, 9)])))
    with_stops = wall(forecast(search([whole(1 / n) for n in range(1, 5)] + [stopped(0.1, 2.0) for _ in range(12)])))
    assert with_stops.middle < 0.7 * without.middle


def test_more_places_finish_sooner_with_the_same_work() -> None:
    trials = [whole(1 / n) for n in range(1, 9)]
    two, eight = forecast(search(trials)), forecast(search(trials, places=8))
    assert wall(eight).middle == pytest.approx(wall(two).middle / 4)
    assert eight.worker_hours == two.worker_hours


def test_the_budget_bounds_the_rest() -> None:
    found = forecast(search([whole(1 / n) for n in range(1, 9)], limit_s=90.0))
    assert wall(found).high <= 90.0
    assert found.worker_hours is not None
    assert found.worker_hours.middle == pytest.approx(2 * 90 / 3600)


def test_repeats_come_after_the_search() -> None:
    trials = [whole(1 / n) for n in range(1, 9)]
    found = wall(forecast(search(trials, repeats=(4, 10))))
    assert 240 < found.low < 240 + 2 * 60 <= found.middle <= 240 + 5 * 60 < found.high
    assert wall(forecast(search(trials, to_start=0, repeats=(4, 4)))).middle == pytest.approx(120)


def test_startup_counts_once_for_each_trial() -> None:
    slow_start = [Course(progress=1.0, held_s=100.0, first=(0.5, 70.0), state="ended", loss=1 / n) for n in range(1, 9)]
    assert wall(forecast(search(slow_start))).middle == pytest.approx(400)
    stopped_early = Course(progress=0.5, held_s=70.0, first=(0.5, 70.0), state="ended", loss=1.0)
    found = wall(forecast(search([*slow_start, stopped_early], to_start=1, places=1)))
    assert found.high <= 106  # and not the 140 s to which 70 s for a half would come


def test_nothing_is_made_up_before_a_trial_has_ended() -> None:
    found = forecast(search([Course(progress=0.2, held_s=5.0, state="running", loss=1.0)]))
    assert (found.wall_s, found.improvement) == (None, None)
    assert found.missing == ("no trial has ended yet",)


def test_few_values_say_what_is_missing() -> None:
    found = forecast(search([whole(0.5), whole(0.4)]))
    assert found.wall_s is not None
    assert found.improvement is None
    assert "5 ended trials" in found.missing[0]


def test_several_objectives_have_no_improvement() -> None:
    found = forecast(search([whole(1 / n) for n in range(1, 9)], judged=False))
    assert found.improvement is None
    assert "several objectives" in found.missing[0]


def test_a_search_without_further_trials_gives_up_nothing() -> None:
    found = forecast(search([whole(1 / n) for n in range(1, 9)], to_start=0))
    assert found.chance == 0
    assert found.improvement == (0, 0, 0)


@pytest.mark.slow
def test_random_points_improve_as_often_and_by_as_much_as_forecast() -> None:
    """The best of N points and n further ones that are drawn alike is among the latter with probability n/(N+n)."""
    random, held, raised, truths, means = np.random.default_rng(0), [], [], [], []
    for seed in range(60):
        values = ((random.random((60, 5)) - 0.5) ** 2).sum(axis=1)
        found = forecast(search([whole(value) for value in values[:30]], to_start=30), seed=seed)
        assert found.improvement is not None
        assert found.chance is not None
        truth = max(0.0, float(values[:30].min() - values[30:].min()))
        held.append(found.improvement.low <= truth <= found.improvement.high)
        raised.append(found.chance)
        truths.append(truth)
        means.append(found.improvement.middle)
    assert sum(held) / len(held) >= 0.75
    assert 0.5 < float(np.mean(raised)) < 0.8  # one half, and the odds that samplers which learn need
    assert 0.5 < float(np.mean(means)) / float(np.mean(truths)) < 2


@pytest.mark.parametrize("least", [-1.0, 0.0], ids=["accuracy", "loss"])
def test_no_accuracy_above_1_and_no_loss_below_0_is_forecast(least: float) -> None:
    values = [0.019, 0.045, 0.067, 0.075, 0.45, 0.61, 0.69, 0.89, 0.92]  # far from each other, and near the bound
    found = forecast(search([whole(least + value) for value in values], to_start=20))
    assert found.improvement is not None
    assert 0 < found.improvement.middle <= found.improvement.high <= 0.019 + 1e-9
    free = forecast(search([whole(least - 5 + value) for value in values], to_start=20))
    assert free.improvement is not None
    assert free.improvement.high > 0.02


def test_a_running_trial_goes_on_to_improve_as_others_did() -> None:
    trials = [Course(progress=1.0, held_s=60.0, state="ended", loss=2.0, curve=[(0.1, 3.0), (1.0, 2.0)])] * 8
    running = Course(progress=0.1, held_s=6.0, state="running", loss=2.5, curve=[(0.1, 2.5)])
    found = forecast(search([*trials, running], to_start=0))
    assert found.improvement is not None
    assert found.chance is not None
    assert found.chance > 0.9
    assert found.improvement.middle == pytest.approx(0.5)


def test_trials_that_count_their_seconds_need_no_length() -> None:
    trials = [Course(progress=s, held_s=s, state="ended", loss=1 / s) for s in (10.0, 20.0, 30.0, 20.0, 10.0, 30.0)]
    found = wall(forecast(search(trials, knows_length=False, to_start=6, places=1)))
    assert 60 < found.low < 120 < found.high < 240


def test_trials_without_a_value_count_but_do_not_break_the_forecast() -> None:
    trials = [whole(1 / n) for n in range(1, 9)] + [Course(progress=0.1, held_s=6.0, state="ended", loss=None)] * 3
    found = forecast(search(trials))
    assert found.improvement is not None
    assert math.isfinite(found.improvement.high)


def test_equal_values_are_not_expected_to_improve() -> None:
    found = forecast(search([whole(0.0)] * 8))
    assert found.chance == 0


def test_a_forecast_survives_its_record_and_runs_down() -> None:
    found = forecast(search([whole(1 / n) for n in range(1, 9)]))
    assert Forecast.from_json(found.as_json()) == found
    assert wall(found.after(100)).middle == pytest.approx(140)
    assert wall(found.after(1e6)) == (0, 0, 0)


def test_a_large_search_is_forecast_in_a_moment() -> None:
    trials = [stopped(0.1 + 0.01 * (n % 80), 1 + n % 7) for n in range(1000)]
    found = forecast(search(trials, to_start=2000, places=200))
    assert wall(found).low > 0
