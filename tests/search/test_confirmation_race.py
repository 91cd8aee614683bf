"""The race between the best configurations: whom it excludes, when it ends, and how often it is wrong."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import pytest

from sweeps.config.search import Mode
from sweeps.search.confirmation_race import Race, race


def run_race(means: Mapping[str, float], seed: int, *, mode: Mode = "min") -> Race:
    """Run a race whose runs return the contender's mean with normal noise of deviation 1."""
    draws = random.Random(seed)
    values: dict[str, list[float]] = {name: [] for name in means}
    while (state := race(mode, values)).next:
        for name in state.next:
            values[name].append(draws.gauss(means[name], 1.0))
    assert {name: each.runs for name, each in state.estimates.items()} == {name: len(values[name]) for name in values}
    return state


def test_every_contender_gets_two_runs_before_any_is_compared() -> None:
    assert race("min", {"a": [], "b": []}).next == ("a", "b")
    first = race("min", {"a": [0.1], "b": [9.0]})
    assert (first.next, first.out, first.estimates) == (("a", "b"), {}, {})


def test_a_round_waits_for_the_runs_that_are_missing_and_their_order_does_not_matter() -> None:
    values = {"a": [0.1, 0.2, 0.3], "b": [0.2]}
    assert race("min", values).next == ("b",)
    whole = {"a": [0.1, 0.2, 0.3], "b": [0.2, 0.2]}
    assert race("min", whole).next == ("b",)
    assert race("min", whole) == race("min", dict(reversed(whole.items())))


@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_hopeless_contender_gets_the_fewest_runs_and_names_who_was_better(mode: Mode) -> None:
    sign = 1 if mode == "min" else -1
    state = run_race({"good": 0.0, "near": sign * 0.01, "hopeless": sign * 100.0}, 1, mode=mode)
    assert state.estimates["hopeless"].runs == 2
    assert state.estimates["good"].runs == state.estimates["near"].runs == 5
    assert state.out["hopeless"] in ("good", "near")
    assert state.winner is None


def test_a_later_value_of_a_contender_that_is_out_changes_nothing() -> None:
    values = {"a": [0.0, 0.1], "b": [50.0, 50.1]}
    state = race("min", values)
    assert state.winner == "a"
    assert state.out == {"b": "a"}
    assert race("min", {**values, "b": [50.0, 50.1, -1000.0]}) == state


def test_trainings_without_noise_are_decided_after_two_runs_unless_they_are_equal() -> None:
    assert race("max", {"a": [0.9, 0.9], "b": [0.8, 0.8]}).winner == "a"
    tied = race("max", {"a": [0.9] * 5, "b": [0.9] * 5})
    assert tied.winner is None
    assert not tied.next
    assert tied.in_race == ("a", "b")


def test_a_wrong_winner_is_named_at_most_at_the_stated_rate() -> None:
    # The hardest case: three contenders that are worse by almost nothing, so each comparison may err.
    means = {"best": 0.0, "b": 1e-6, "c": 1e-6, "d": 1e-6}
    ends = [run_race(means, seed) for seed in range(300)]
    assert sum("best" in end.out for end in ends) / 300 <= 0.05
    assert sum(end.winner is None for end in ends) / 300 >= 0.95


def test_a_better_contender_by_several_deviations_wins_with_fewer_runs_than_allowed() -> None:
    ends = [run_race({"a": 0.0, "b": 6.0, "c": 7.0}, seed) for seed in range(200)]
    assert fmean(end.winner == "a" for end in ends) > 0.98
    assert fmean(sum(each.runs for each in end.estimates.values()) for end in ends) < 10


@pytest.mark.slow
def test_the_interval_of_the_contender_that_is_named_first_holds_its_true_mean_at_least_at_the_stated_rate() -> None:
    ends = [run_race({"a": 3.0, "b": 3.0, "c": 6.0}, seed) for seed in range(300)]
    true = {"a": 3.0, "b": 3.0, "c": 6.0}
    first = [(true[end.in_race[0]], end.estimates[end.in_race[0]]) for end in ends]
    assert fmean(interval.low <= mean <= interval.high for mean, interval in first) >= 0.95


@pytest.mark.parametrize(("contenders", "runs", "confidence"), [(1, 5, 0.95), (2, 1, 0.95), (2, 5, 1.0)])
def test_a_race_that_cannot_be_decided_is_refused(contenders: int, runs: int, confidence: float) -> None:
    with pytest.raises(ValueError, match="a race needs two contenders"):
        race("min", {str(index): [] for index in range(contenders)}, max_runs=runs, confidence=confidence)


def test_a_contender_that_failed_cannot_win_and_its_values_exclude_nobody() -> None:
    values = {"a": [0.1, 0.11], "b": [0.4, 0.41], "c": [0.42]}
    state = race("min", values, failed={"a"})
    assert (state.next, state.in_race, dict(state.out)) == (("c",), ("b", "c"), {})
    alone = race("min", values, failed={"a", "c"})
    assert alone.winner == "b"
    assert alone.estimates["b"].runs == 2
    none = race("min", values, failed={"a", "b", "c"})
    assert (none.next, none.in_race, none.winner) == ((), (), None)


def test_a_value_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match=r"finite values; those of b are \[nan\]"):
        race("min", {"a": [1.0], "b": [float("nan")]})


def test_the_documented_race_goes_on_without_the_configuration_that_has_lost(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = re.findall(r"```python\n(.*?)```", (checkout / "docs" / "confirm.md").read_text(encoding="utf-8"), re.S)
    (example,) = (code for code in found if "import race" in code)
    exec(example)
    following, rest = capsys.readouterr().out.splitlines()
    assert following == "('trial 0012', 'trial 0007')"
    assert rest.startswith("None Estimate(mean=0.2155")
