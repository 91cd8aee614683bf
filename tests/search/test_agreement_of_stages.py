"""Agreement of two orders of the same points, with an interval that holds for few points."""

from __future__ import annotations

import itertools
import math

import pytest
from scipy.stats import kendalltau

from sweeps.search.rank_agreement import MAX_POINTS, agreement


def inversions(order: tuple[int, ...]) -> int:
    return sum(first > second for first, second in itertools.combinations(order, 2))


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (1, 0, 3, 2, 4), (4, 3, 2, 1, 0), (2, 4, 1, 0, 3)])
def test_the_correlation_is_kendalls(order: tuple[int, ...]) -> None:
    found = agreement(range(5), order)
    assert found.tau == pytest.approx(kendalltau(range(5), order).statistic)
    assert found.points == 5
    assert -1 <= found.low <= found.tau <= found.high <= 1


@pytest.mark.parametrize("points", [3, 5])
@pytest.mark.parametrize("parameter", [-3.0, -1.0, -0.3, 0.0, 0.5, 2.0])
def test_the_interval_holds_the_true_correlation_in_95_percent_of_all_cases(points: int, parameter: float) -> None:
    """All orders of few points, each with its probability under Mallows' model: exact, and not simulated."""
    orders = [*itertools.permutations(range(points))]
    weights = [math.exp(parameter * inversions(order)) for order in orders]
    pairs = points * (points - 1) / 2
    truth = sum(w * (1 - 2 * inversions(o) / pairs) for w, o in zip(weights, orders, strict=True)) / sum(weights)
    by_count = {inversions(order): agreement(range(points), order) for order in orders}
    held = sum(
        weight
        for weight, order in zip(weights, orders, strict=True)
        if by_count[inversions(order)].low <= truth <= by_count[inversions(order)].high
    )
    assert held / sum(weights) >= 0.95


def test_five_points_in_the_same_order_do_not_prove_that_all_are() -> None:
    found = agreement([1, 2, 3, 4, 5], [1, 2, 3, 4, 5])
    assert (found.tau, found.high) == (1, 1)
    assert 0.1 < found.low < 0.3
    assert found.describe() == "Kendall's tau 1 (95 % interval 0.2 to 1, 5 points)"


def test_more_points_and_less_confidence_make_the_interval_narrower() -> None:
    few, many = agreement(range(5), range(5)), agreement(range(30), range(30))
    assert many.low > few.low
    assert agreement(range(5), range(5), confidence=0.5).low > few.low


def test_equal_values_tell_nothing_about_their_order() -> None:
    assert agreement([1, 1, 1], [1, 2, 3]).tau == 0
    assert agreement([1, 1, 2], [1, 2, 3]).tau == pytest.approx(2 / 3)


def test_one_point_has_no_order() -> None:
    found = agreement([1.0], [2.0])
    assert (found.tau, found.low, found.high) == (None, -1, 1)
    assert found.describe() == "not measured, with 1 point trained to the end in both"


def test_only_the_first_of_very_many_points_are_compared() -> None:
    found = agreement(range(1000), range(1000))
    assert found.points == MAX_POINTS
    assert 0.99 < found.low < 1


def test_a_point_without_a_partner_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="1 and 2 values"):
        agreement([1], [1, 2])
