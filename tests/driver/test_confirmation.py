"""Which trials are compared, which repeats are next, and what the result says, from the state of a sweep."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from composing import composed_digits
from records import sweep_record, trial_record

from sweeps.constants import TRIAL
from sweeps.driver.confirmation_searcher import RepeatSearcher
from sweeps.driver.confirmer import Confirmer, begin_confirmation
from sweeps.driver.early_end import Shutdown
from sweeps.driver.sweep_state import SweepState, _status_of
from sweeps.driver.trial_status import TrialStatus
from sweeps.tracking.confirmation_record import Confirmation


@pytest.fixture
def state() -> SweepState:
    """A sweep for the highest accuracy, whose search has ended."""
    nothing: Any = None
    state = SweepState("s", composed_digits(), nothing, 2, Shutdown(nothing))
    for trial, lr, value, end in (
        ("0000", 0.1, 0.80, "finished"),
        ("0001", 0.2, 0.90, "finished"),
        ("0002", 0.3, 0.99, "failed"),
        ("0003", 0.4, 0.85, "pruned"),
        ("0004", 0.2, 0.89, "finished"),
        ("0005", 0.5, 0.95, "finished"),
        ("0006", 0.6, 0.10, "finished"),
    ):
        values = None if value is None else (value,)
        state.trials[trial] = TrialStatus(trial, {"train.lr": lr}, end, values=values)  # type: ignore[arg-type]
    state.trials["0005"].violation = "system/memory_mib=9000 is above its limit of 2000"
    return state


@pytest.fixture
def session(state: SweepState) -> Any:
    return SimpleNamespace(state=state, recorder=MagicMock(), wait_for_ends=lambda: True)


def repeat(state: SweepState, trial: str, value: float | None, end: str = "finished") -> None:
    values = None if value is None else (value,)
    status: Any = end
    state.trials[trial] = TrialStatus(trial, {}, status, repeat_of=trial.partition("r")[0], values=values)


def missing(confirmer: Confirmer) -> list[str]:
    return [each.trial for each in confirmer.missing()]


def test_the_best_trials_with_different_parameters_that_keep_the_limits_are_compared(state: SweepState) -> None:
    assert Confirmer(state, 3).names == ["0001", "0003", "0000"]


def test_the_first_two_repeats_start_together_with_the_same_seeds_for_all(state: SweepState) -> None:
    found = Confirmer(state, 2).missing()
    assert [each.trial for each in found] == ["0001r1", "0003r1", "0001r2", "0003r2"]
    assert [each.parameters(7) for each in found] == [
        {"train.lr": 0.2, "seed": 8},
        {"train.lr": 0.4, "seed": 8},
        {"train.lr": 0.2, "seed": 9},
        {"train.lr": 0.4, "seed": 9},
    ]


def test_only_trials_that_are_not_significantly_worse_are_repeated_again(state: SweepState) -> None:
    confirmer = Confirmer(state, 3)
    for trial, value in (("0001", 0.90), ("0003", 0.91), ("0000", 0.5)):
        repeat(state, f"{trial}r1", value)
        repeat(state, f"{trial}r2", value + 0.01)
    assert missing(confirmer) == ["0001r3", "0003r3"]
    repeat(state, "0003r3", 0.92)
    assert missing(confirmer) == ["0001r3"]
    result = confirmer.result()
    assert result.winner is None
    assert result.describe() == "not confirmed: it continues; 7 repeats ended"
    assert [(each.trial, each.lost_to) for each in result.contenders] == [
        ("0003", None),
        ("0001", None),
        ("0000", "0003"),
    ]


def test_a_winner_is_named_with_its_interval_and_then_is_the_best(state: SweepState) -> None:
    confirmer = Confirmer(state, 2)
    for trial, value in (("0001r1", 0.5), ("0001r2", 0.51), ("0003r1", 0.9), ("0003r2", 0.91)):
        repeat(state, trial, value)
    assert confirmer.is_over()
    assert not confirmer.missing()
    result = confirmer.result()
    assert (result.winner, result.tied) == ("0003", ())
    best = result.of_winner()
    assert best is not None
    assert best.mean == pytest.approx(0.905)
    assert best.low is not None
    assert best.low < 0.905
    assert result.describe().startswith("trial 0003 wins with a mean of 0.905 (95 % interval ")
    assert Confirmation.from_json(result.as_json()) == result
    assert state.front()[0].trial == "0001"
    state.winner = result.winner
    assert [each.trial for each in state.front()] == ["0003"]


def test_equal_trials_are_repeated_five_times_and_the_doubt_is_told(state: SweepState) -> None:
    confirmer = Confirmer(state, 2)
    for run, noise in enumerate((0.01, -0.02, 0.03, 0.0, 0.01), start=1):
        assert not confirmer.is_over()
        repeat(state, f"0001r{run}", 0.9 + noise)
        repeat(state, f"0003r{run}", 0.9 - noise)
    assert confirmer.is_over()
    result = confirmer.result()
    assert (result.winner, result.tied) == ("0001", ("0003",))
    assert "is not significantly better than 0003" in result.describe()


@pytest.mark.parametrize(
    ("end", "value", "violation", "words"),
    [
        ("failed", None, None, "its repeat 0001r2 failed: out of memory"),
        ("stopped", 0.9, None, "its repeat 0001r2 was stopped by a person"),
        ("finished", 0.9, "it is too large", "its repeat 0001r2 is out of bounds: it is too large"),
        ("finished", None, None, "its repeat 0001r2 reported no finite eval/accuracy"),
    ],
)
def test_a_trial_with_a_repeat_that_does_not_count_cannot_win(
    state: SweepState, end: str, value: float | None, violation: str | None, words: str
) -> None:
    confirmer = Confirmer(state, 2)
    repeat(state, "0001r1", 0.99)
    repeat(state, "0001r2", value, end)
    state.trials["0001r2"].violation, state.trials["0001r2"].error = violation, "out of memory"
    assert missing(confirmer) == ["0003r1", "0003r2"]
    repeat(state, "0003r1", 0.5)
    repeat(state, "0003r2", 0.6)
    result = confirmer.result()
    assert result.winner == "0003"
    assert [each.failed for each in result.contenders] == [None, words]


def test_a_repeat_that_a_person_stopped_is_not_trained_again_and_one_that_ended_with_the_sweep_is(
    state: SweepState, session: Any
) -> None:
    for name, for_good in (("0001r1", True), ("0003r1", False)):
        recorded = trial_record(name, None, "stopped", stopped_for_good=for_good, repeat_of=name[:4])
        state.trials[name] = _status_of(sweep_record(), recorded)
    repeat(state, "0003r2", None, "stopped")
    state.view = MagicMock()
    plan: Any = SimpleNamespace(config=SimpleNamespace(search=SimpleNamespace(confirm=2)))
    confirmer = begin_confirmation(plan, session)
    assert missing(confirmer) == ["0003r1", "0003r2"]
    assert state.trials["0001r1"].state == "stopped"


def test_a_repeat_that_an_earlier_session_left_is_given_again_and_one_that_ended_is_not(state: SweepState) -> None:
    confirmer = Confirmer(state, 2)
    repeat(state, "0001r1", 0.9)
    repeat(state, "0003r1", None, "waiting")
    repeat(state, "0003r2", None, "running")
    assert missing(confirmer) == ["0003r1", "0001r2"]


def test_repeats_are_no_trials_of_the_search(state: SweepState) -> None:
    before = state.counts(), state.ended_count(), state.front()
    repeat(state, "0001r1", 1.0)
    assert (state.counts(), state.ended_count(), state.front()) == before
    repeat(state, "0001r2", 1.0, "running")
    state.to_repeat = {"0001r3", "0003r1", "0003r2"}
    assert state.unfinished_count(is_over=True) == 4


def test_an_unfinished_repeat_of_a_trial_that_is_no_longer_among_the_best_is_not_waited_for(
    state: SweepState, session: Any
) -> None:
    repeat(state, "0001r1", None, "waiting")
    repeat(state, "0006r1", None, "waiting")
    state.num_trials = len(state.trials_of())
    assert (state.unfinished_count(is_over=True), state._more_to_come()) == (0, False)
    searcher = RepeatSearcher(session, Confirmer(state, 2))
    first = searcher.suggest("first")
    assert first is not None
    assert state.unfinished_count(is_over=True) == 4, "as many as a confirmation of two trials begins with"
    repeat(state, first[TRIAL], None, "running")
    assert state.unfinished_count(is_over=True) == 4, "its actor has started"
    repeat(state, first[TRIAL], 0.9)
    assert state.unfinished_count(is_over=True) == 3


def test_one_trial_alone_is_not_confirmed(state: SweepState) -> None:
    state.trials = {"0000": state.trials["0000"]}
    confirmer = Confirmer(state, 3)
    assert confirmer.is_over()
    assert "different parameters are needed, and there is 1" in confirmer.result().describe()


def test_a_budget_that_is_used_up_ends_the_confirmation_when_its_last_repeat_has_stopped(
    state: SweepState, session: Any
) -> None:
    searcher = RepeatSearcher(session, Confirmer(state, 2))
    first = searcher.suggest("first")
    assert first is not None
    assert first[TRIAL] == "0001r1"
    state.shutdown.budget_spent = "search.stop.wall_hours=1 is used up"
    assert searcher.suggest("second") is None
    repeat(state, "0001r1", None, "stopped")
    searcher.on_trial_complete("first")
    assert searcher.suggest("third") == RepeatSearcher.FINISHED
