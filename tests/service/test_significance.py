"""The noise of a schedule's nights: what it says of a challenger and of a worse night."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sweeps.config.nights import Nights, Regression
from sweeps.search.significance import duel, pooled_deviation
from sweeps.service.nights.night import Night
from sweeps.service.nights.verdict import after_sweep


def test_the_noise_is_the_deviation_within_groups_and_not_between_them() -> None:
    assert pooled_deviation([(1.0, 2.0), (11.0, 12.0)]) == pytest.approx(0.5**0.5)
    assert pooled_deviation([(1.0,), ()]) is None


@pytest.mark.parametrize(("mode", "sign"), [("max", 1), ("min", -1)])
def test_a_challenger_wins_by_more_than_so_many_deviations_of_the_difference(mode: Any, sign: int) -> None:
    champions, challengers = [sign * each for each in (1.0, 1.0)], [sign * each for each in (1.3, 1.3)]
    assert duel(mode, champions, challengers, 0.1, 2.0).gain == pytest.approx(0.3)
    assert duel(mode, champions, challengers, 0.1, 2.0).needed == pytest.approx(0.2)
    assert duel(mode, champions, challengers, 0.1, 2.0).won
    assert not duel(mode, champions, challengers, 0.1, 4.0).won
    assert not duel(mode, challengers, champions, 0.0, 2.0).won


def regression(best: float, earlier: Sequence[float], noise: float | None, **rule: Any) -> str:
    """Why a night is worse than earlier ones; empty if it is not."""
    settings = Nights(regression=Regression(**rule), champion=None)
    sweep: dict[str, Any] = {"schedule": "s", "due": 1.0, "sweep": "night", "metric": "acc", "mode": "max"}
    night = Night(**sweep, settings=settings, best=best, noise=noise)
    found = after_sweep(night, [replace(night, best=each) for each in earlier], champion_is_best=False)
    return found[1] if found is not None and found[0] == "regression" else ""


def test_a_night_may_differ_by_the_noise_and_by_what_nights_differ_anyway() -> None:
    assert not regression(0.9, [], 0.01)
    assert not regression(0.9, [0.95], None)
    assert regression(0.90, [0.95, 0.951, 0.949], 0.01)
    assert not regression(0.90, [0.95, 0.99, 0.91], 0.01)
    assert not regression(0.99, [0.95, 0.951, 0.949], 0.01)


def test_where_equal_trainings_give_equal_values_a_difference_counts_from_the_one_that_is_set() -> None:
    assert not duel("max", [0.3], [0.1 + 0.2], 0.0, 2.0).won  # 5e-17
    assert duel("max", [0.3], [0.3001], 0.0, 2.0).won
    assert not duel("max", [0.3], [0.3001], 0.0, 2.0, min_change=0.001).won
    assert not duel("max", [0.3], [0.35], 0.1, 2.0, min_change=0.001).won


def test_a_noise_of_0_makes_no_regression_of_nights_that_differ_by_their_data() -> None:
    assert not regression(0.94, [0.95], 0.0, min_change=0.01)
    assert not regression(0.945, [0.95, 0.95, 0.95], 0.0, min_change=0.01)
    assert regression(0.93, [0.95, 0.95, 0.95], 0.0, min_change=0.01)


def test_only_so_many_nights_before_are_looked_at() -> None:
    assert "worse than the usual 0.95 by 0.05" in regression(0.9, [0.1, 0.1, 0.1, 0.95, 0.95], 0.01, nights=2)
