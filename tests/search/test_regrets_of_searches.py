"""Tables of the benchmark of searches: the regret against the budget, and the budget that a regret needs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from searched.paired import compare
from searched.regrets import (
    FRACTIONS,
    Cell,
    Results,
    as_document,
    budget_needed,
    progress_table,
    quality_table,
    read_results,
    settings_table,
)


def falling(to: float) -> list[float]:
    """Regrets that fall evenly from 1, and end at ``to``."""
    return [1 - (1 - to) * part for part in FRACTIONS]


@pytest.fixture
def results() -> Results:
    return {
        Cell(4, 40, "ours", "a"): [falling(0.0), falling(0.0)],
        Cell(4, 40, "peer", "a"): [falling(0.5), falling(0.5)],
        Cell(4, 40, "ours", "b"): [falling(0.4), falling(0.6)],
        Cell(4, 40, "peer", "b"): [falling(0.2), falling(0.2)],
    }


def test_the_budget_needed_is_the_part_from_which_on_the_mean_regret_is_low_enough() -> None:
    assert budget_needed(falling(0.0), 0.5) == 0.5
    assert budget_needed(falling(0.0), 0.49) == 0.55
    assert budget_needed(falling(0.3), 0.2) is None
    assert budget_needed([0.1] * len(FRACTIONS), 0.2) == FRACTIONS[0]
    rises_meanwhile = [0.1] * 5 + [0.3] + [0.2] * (len(FRACTIONS) - 6)
    assert budget_needed(rises_meanwhile, 0.2) == FRACTIONS[6]


def test_the_table_says_what_part_of_the_budget_gives_the_best_peers_regret(results: Results) -> None:
    rows = progress_table(results, ["ours", "peer"], ["peer"], ["a", "b"], 4, 40).splitlines()
    assert rows[0] == "| method | 10% | 25% | 50% | 75% | 100% | budget needed |"
    # On a, ours is at the peer's 0.5 after half of the budget; on b it ends above the peer's 0.2.
    assert rows[2].endswith("| 0.250 ±0.635 | over 75% (1 of 2 never) |")
    assert rows[3].startswith("| peer | 0.935 ±0.000 |")
    assert rows[3].endswith("| 100% |")


def test_without_a_peer_no_budget_is_given(results: Results) -> None:
    assert progress_table(results, ["ours"], [], ["a"], 4, 40).splitlines()[2].endswith("| 0.000 ±0.000 |  |")


def test_the_best_of_a_problem_is_bold_and_ranks_are_means_over_problems_and_seeds(results: Results) -> None:
    rows = quality_table(results, ["ours", "peer"], ["a", "b"], 4, 40).splitlines()
    assert rows[2] == "| ours | **0.000** ±0.000 | 0.500 ±1.271 | 1.50 |"
    assert rows[3] == "| peer | 0.500 ±0.000 | **0.200** ±0.000 | 1.50 |"


def test_several_budgets_and_numbers_of_workers_are_compared_in_one_table(results: Results) -> None:
    results |= {cell._replace(workers=1, budget=10): regrets for cell, regrets in [*results.items()]}
    rows = settings_table(results, ["ours", "peer"], ["a", "b"], [(1, 10), (4, 40)]).splitlines()
    assert rows[0] == "| method | budget 10, 1 worker | budget 40, 4 workers |"
    assert rows[2] == "| ours | **0.250** ±0.635, rank 1.5 | **0.250** ±0.635, rank 1.5 |"
    assert rows[3] == "| peer | 0.350 ±0.000, rank 1.5 | 0.350 ±0.000, rank 1.5 |"


def ends(mean: float, seed: int) -> np.ndarray:
    """Regrets of twenty seeds."""
    return mean + np.random.default_rng(seed).normal(0, 0.1, 20)


def test_a_method_is_called_better_or_worse_where_its_paired_regrets_are_so_for_nearly_all_seeds() -> None:
    baseline = {name: ends(0.5, number) for number, name in enumerate("abcd")}
    method = {
        "a": baseline["a"] - 0.02 + 0.001 * np.arange(20),  # less than the spread over seeds, but for each of them
        "b": baseline["b"] + 0.02,
        "c": baseline["c"].copy(),
        "d": baseline["d"] + np.tile([0.1, -0.1], 10),
    }
    assert compare(method, baseline) == {"a": "better", "b": "worse", "c": None, "d": None}
    assert compare(baseline, method) == {"a": "worse", "b": "better", "c": None, "d": None}


def test_the_more_problems_the_clearer_a_difference_has_to_be() -> None:
    baseline = np.zeros(8)
    differs = np.array([-1.0, -2, -3, -4, -5, -6, 1.5, -7])  # p = 0.039
    assert compare({"a": differs}, {"a": baseline}) == {"a": "better"}
    alike = {name: np.array([1.0, -1] * 4) for name in "bcd"}
    more = compare({"a": differs, **alike}, dict.fromkeys("abcd", baseline))
    assert set(more.values()) == {None}


def test_among_methods_that_are_alike_few_are_called_better_or_worse() -> None:
    called = [
        compare({name: ends(0.5, 100 + seed) for name in "a"}, {name: ends(0.5, 500 + seed) for name in "a"})["a"]
        for seed in range(200)
    ]
    assert sum(verdict is not None for verdict in called) < 20


def test_the_table_marks_where_a_method_is_better_or_worse_than_the_baseline_and_counts_the_problems() -> None:
    found = {
        Cell(4, 40, method, problem): [falling(mean + 0.01 * seed) for seed in range(8)]
        for method, problem, mean in [
            ("ours", "a", 0.1),
            ("random+asha", "a", 0.3),
            ("ours", "b", 0.4),
            ("random+asha", "b", 0.2),
        ]
    }
    rows = quality_table(found, ["ours", "random+asha"], ["a", "b"], 4, 40).splitlines()
    assert rows[0] == "| method | a | b | mean rank | better | worse |"
    assert rows[2] == "| ours | **0.135** ±0.020 ▼ | 0.435 ±0.020 ▲ | 1.50 | 1 of 2 | 1 of 2 |"
    assert rows[3] == "| random+asha | 0.335 ±0.020 | **0.235** ±0.020 | 1.50 | 0 of 2 | 0 of 2 |"


def test_results_are_read_again_and_those_at_other_parts_of_the_budget_are_refused(
    results: Results, tmp_path: Path
) -> None:
    file = tmp_path / "regrets.json"
    assert read_results(file) == {}
    rows = as_document(results)
    file.write_text(json.dumps(rows))
    assert read_results(file) == results
    file.write_text(json.dumps([{**rows[0], "fractions": [0.5, 1.0]}]))
    with pytest.raises(ValueError, match=r"regrets\.json has regrets at other parts"):
        read_results(file)
