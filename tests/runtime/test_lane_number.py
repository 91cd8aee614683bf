"""The number of lanes with which a worker group trains most, found while it trains."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sweeps.runtime.lane_number import MEASURED, SKIPPED, LaneNumber


def found(most: int, seconds: Callable[[int], float]) -> LaneNumber:
    """Let a group train that has always enough trials, of two tokens a step."""
    number = LaneNumber(most)
    for _ in range(1000):
        number.add(number.number, 2 * number.number, seconds(number.number))
    return number


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (lambda lanes: 1.0, 16),  # a step takes as long whatever it trains
        (float, 1),  # sharing gains nothing
        (lambda lanes: lanes / 1.04 if lanes > 1 else 1.0, 1),  # less than 5 %
        (lambda lanes: max(1.0, lanes / 4), 4),
        (lambda lanes: max(1.0, lanes / 3), 4),  # 2, then half as much again with 4
    ],
)
def test_lanes_are_doubled_while_that_trains_more(seconds: Callable[[int], float], expected: int) -> None:
    number = found(16, seconds)
    assert (number.number, number.is_found) == (expected, True)


def test_the_most_need_not_be_a_power_of_two() -> None:
    assert found(6, lambda lanes: 1.0).number == 6


def test_steps_of_fewer_lanes_and_those_that_record_passes_do_not_count() -> None:
    number = LaneNumber(2)
    steps = SKIPPED + MEASURED
    for _ in range(steps):
        number.add(1, 2, 1.0)
    assert number.number == 2
    for _ in range(SKIPPED):
        number.add(2, 4, 100.0)
    for _ in range(MEASURED - 1):
        number.add(2, 4, 1.0)
    number.add(1, 2, 1.0)  # a trial has ended
    for _ in range(SKIPPED):
        number.add(2, 4, 100.0)
    assert not number.is_found
    number.add(2, 4, 1.0)
    assert (number.number, number.is_found) == (2, True)
    assert number.reason == "1 trains 2; 2 train 4 tokens a second"


def test_what_another_group_has_found_is_not_measured_again() -> None:
    number = LaneNumber(16, 4, is_found=True)
    assert not any(number.add(4, 8, 1.0) for _ in range(100))
    assert number.number == 4


def test_it_is_found_also_where_trials_are_too_short_for_all_steps_in_a_row() -> None:
    number = LaneNumber(2)
    for _ in range(SKIPPED + MEASURED):
        number.add(1, 2, 1.0)
    while not number.is_found:  # short trials, one after another
        number.add(1, 2, 1.0)
        for _ in range(SKIPPED + 2):
            number.add(2, 4, 2.0)
    assert number.number == 1
