"""Places: trials run up to a limit, of which paused ones take no part; and Tune's limiter, which asks for them."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from ray import cloudpickle
from ray.tune.search import Searcher

from sweeps.config.objectives import Objectives
from sweeps.constants import TRIAL
from sweeps.driver import driver_progress
from sweeps.driver.pause_aware_limiter import PauseAwareLimiter
from sweeps.driver.tune_scheduler import TuneScheduler
from sweeps.search.schedulers.places import Places
from sweeps.search.schedulers.scheduler import Scheduler


class Names(Searcher):
    """Suggests one trial after another, by name, and says that it is over after the last one."""

    def __init__(self, names: str):
        super().__init__(metric="loss", mode="min")
        self._names = list(names)

    def suggest(self, trial_id: str) -> Any:
        return {TRIAL: self._names.pop(0)} if self._names else self.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Do nothing."""


def started(limiter: PauseAwareLimiter, *trial_ids: str) -> list[str]:
    """Trials among these that the limiter starts."""
    return [trial_id for trial_id in trial_ids if isinstance(limiter.suggest(trial_id), dict)]


def test_a_paused_trial_makes_room_for_another_until_it_is_resumed() -> None:
    limiter = PauseAwareLimiter(Names("abcd"), 2)
    assert started(limiter, "1", "2", "3") == ["1", "2"]
    limiter.places.pause("a")
    assert started(limiter, "3", "4") == ["3"]
    limiter.places.resume("a")
    assert limiter.places.capacity == -1
    limiter.on_trial_complete("2")
    limiter.on_trial_complete("3")
    assert started(limiter, "4") == ["4"]


def test_new_trials_are_held_back_while_paused_ones_are_resumed_first() -> None:
    places = Places(3)
    places.holds_new = True
    assert places.may_begin(), "there is none that could be resumed"
    places.begin("a")
    assert not places.may_begin()
    places.holds_new = False
    assert places.may_begin()


def test_an_empty_searcher_is_not_over_for_tune_while_a_trial_lives() -> None:
    limiter = PauseAwareLimiter(Names("a"), 2)
    limiter.stay_open()
    assert started(limiter, "1") == ["1"]
    assert limiter.suggest("2") is None
    assert limiter.places.is_empty
    limiter.on_trial_complete("1")
    assert limiter.suggest("2") == Searcher.FINISHED


def test_a_driver_whose_trials_all_wait_for_a_node_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_progress._Driver, "next_sign_by", 0.0)
    PauseAwareLimiter(Names("a"), 1).suggest("1")  # Tune asks each second, for ten minutes
    assert not driver_progress.is_stalled()


def test_all_unfinished_trials_of_an_earlier_session_start_together() -> None:
    searcher = Names("abc")
    searcher.unfinished = ["a", "b", "c"]  # type: ignore[attr-defined]
    assert started(PauseAwareLimiter(searcher, 1, restart_together=True), "1", "2", "3") == ["1", "2", "3"]
    assert started(PauseAwareLimiter(Names("abc"), 1, restart_together=True), "1", "2") == ["1"]


def test_tune_may_pickle_a_scheduler_that_asks_the_driver() -> None:
    session: Any = SimpleNamespace(decisions=None, state=SimpleNamespace(lock=threading.RLock()))
    scheduler = Scheduler(Objectives(("loss",), ("min",)))
    cloudpickle.dumps(TuneScheduler(scheduler, PauseAwareLimiter(Names("a"), 1), session))
