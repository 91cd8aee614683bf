"""PauseAwareLimiter: trials run up to a limit, of which paused ones take no part."""

from __future__ import annotations

from typing import Any

from scheduling import Curves

from sweeps.search.schedulers.pause_aware_limiter import PauseAwareLimiter


class Finished(Curves):
    """Searcher that says that it is over once it has suggested all trials."""

    def suggest(self, trial_id: str) -> Any:
        return super().suggest(trial_id) or self.FINISHED


def started(limiter: PauseAwareLimiter, *trial_ids: str) -> list[str]:
    """Trials among these that the limiter starts."""
    return [trial_id for trial_id in trial_ids if isinstance(limiter.suggest(trial_id), dict)]


def test_a_paused_trial_makes_room_for_another_until_it_is_resumed() -> None:
    limiter = PauseAwareLimiter(Curves("abcd"), 2)
    assert started(limiter, "a", "b", "c") == ["a", "b"]
    limiter.pause("a")
    assert started(limiter, "c", "d") == ["c"]
    limiter.unpause("a")
    assert limiter.capacity == -1
    limiter.on_trial_complete("b")
    limiter.on_trial_complete("c")
    assert started(limiter, "d") == ["d"]


def test_new_trials_are_held_back_while_paused_ones_are_resumed_first() -> None:
    limiter = PauseAwareLimiter(Curves("abc"), 3)
    assert started(limiter, "a") == ["a"]
    limiter.hold_new_trials()
    assert started(limiter, "b") == []
    limiter.hold_new_trials(False)
    assert started(limiter, "b") == ["b"]


def test_an_empty_searcher_is_not_over_for_tune_while_a_trial_lives() -> None:
    searcher = Finished("a")
    limiter = PauseAwareLimiter(searcher, 2)
    assert [limiter.stay_open(), limiter.stay_open()] == [True, False]
    assert started(limiter, "a") == ["a"]
    assert limiter.suggest("b") is None
    assert limiter.is_empty
    limiter.on_trial_complete("a")
    assert limiter.suggest("b") == searcher.FINISHED


def test_all_unfinished_trials_of_an_earlier_session_start_together() -> None:
    searcher = Curves("abc")
    searcher.unfinished = ["a", "b", "c"]  # type: ignore[attr-defined]
    assert started(PauseAwareLimiter(searcher, 1, restart_together=True), "a", "b", "c") == ["a", "b", "c"]
    assert started(PauseAwareLimiter(Curves("abc"), 1, restart_together=True), "a", "b") == ["a"]
