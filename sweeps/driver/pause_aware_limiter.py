"""Limits the number of trials that Tune runs at once, for schedulers that pause trials."""

from __future__ import annotations

from typing import Any

from ray.tune.search import ConcurrencyLimiter, Searcher

from sweeps.constants import TRIAL
from sweeps.driver.driver_progress import SEARCHES_WITHIN_S, expect_progress
from sweeps.search.schedulers.places import Places


class PauseAwareLimiter(ConcurrencyLimiter):
    """Concurrency limiter that asks a searcher for a trial when there is a place for one.

    Unlike Tune's limiter, it does not count paused trials. It subclasses Tune's limiter because Tune looks for one to
    learn how many trials to start together.
    """

    def __init__(self, searcher: Searcher, max_concurrent: int, *, restart_together: bool = False):
        """
        Args:
            searcher: Suggests the trials.
            max_concurrent: Number of trials that run at once.
            restart_together: Start all unfinished trials of an earlier session at once; the scheduler pauses those that
                exceed the limit.
        """
        super().__init__(searcher, max_concurrent=max_concurrent)
        self.searcher: Searcher = searcher
        self.places = Places(max_concurrent)
        self._restart_together = restart_together
        self._begun: dict[str, str] = {}
        """Ids of the trials that are alive, by Tune's own ids."""
        self._stays_open = False

    @property
    def is_over(self) -> bool:
        """Whether the searcher has a reason to start no further trial."""
        return getattr(self.searcher, "ended_because", None) is not None

    def is_alive(self, trial_id: str) -> bool:
        """Whether a trial, by Tune's own id, has been suggested and has not ended."""
        return trial_id in self._begun

    def stay_open(self) -> None:
        """Hide from Tune that the searcher is done while trials are alive. Otherwise Tune would stop idle actors, which
        paused trials need again."""
        self._stays_open = True

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        expect_progress(SEARCHES_WITHIN_S)  # while no trial is there, Tune asks here for ten minutes in one step
        restarts = self._restart_together and bool(getattr(self.searcher, "unfinished", ()))
        if not restarts and not self.places.may_begin():
            return None
        suggestion: Any = self.searcher.suggest(trial_id)  # a config, None, or Tune's sign that the search has finished
        self.places.is_empty = not isinstance(suggestion, dict)
        if not self.places.is_empty:
            self._begun[trial_id] = suggestion[TRIAL]
            self.places.begin(suggestion[TRIAL])
        is_hidden = self.places.is_empty and self._stays_open and self._begun
        return None if is_hidden else suggestion

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if trial_id in self._begun:
            self.places.end(self._begun.pop(trial_id))
        self.searcher.on_trial_complete(trial_id, result=result, error=error)
