"""Limit on the number of trials that run at once, for schedulers that pause trials."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ray.tune.search import ConcurrencyLimiter, Searcher


class PauseAwareLimiter(ConcurrencyLimiter):
    """Asks a searcher for a trial when fewer than ``max_concurrent`` trials run.

    Unlike Tune's limiter it does not count paused trials. It is a subclass, since Tune looks for one to learn how many
    trials to start together.
    """

    def __init__(self, searcher: Searcher, max_concurrent: int, *, restart_together: bool = False):
        """
        Args:
            searcher: Suggests the trials.
            max_concurrent: Number of trials that run at once.
            restart_together: Start all unfinished trials of an earlier session at once, however many; the scheduler
                pauses those that are too many.
        """
        super().__init__(searcher, max_concurrent=max_concurrent)
        self.searcher: Searcher = searcher
        self.is_empty = False
        """Whether the searcher had no trial to suggest when it was last asked."""
        self._restart_together = restart_together
        self._live: set[str] = set()
        self._paused: set[str] = set()
        self.holds_new = False
        """Whether no new trials are started, until paused ones were resumed."""
        self._stays_open = False

    @property
    def capacity(self) -> int:
        """Number of further trials that may run now; negative if too many were restarted."""
        return self.max_concurrent - len(self._live - self._paused)

    @property
    def is_over(self) -> bool:
        """Whether the searcher has a reason to start no further trial."""
        return getattr(self.searcher, "ended_because", None) is not None

    def set_paused(self, trial_ids: Collection[str]) -> None:
        """Set which trials are paused."""
        self._paused = set(trial_ids)

    def pause(self, trial_id: str) -> None:
        self._paused.add(trial_id)

    def unpause(self, trial_id: str) -> None:
        self._paused.discard(trial_id)

    def hold_new_trials(self, hold: bool = True) -> None:
        """Start no new trials (or with ``hold=False``: again) until paused ones were resumed: Tune asks for new trials
        before it asks which of the paused ones to resume."""
        self.holds_new = hold

    def stay_open(self) -> bool:
        """Hide from Tune that the searcher is done, as long as trials live: Tune stops idle actors after that, which
        paused trials need again. Returns whether this is new."""
        was_open, self._stays_open = self._stays_open, True
        return not was_open

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        restarts = self._restart_together and bool(getattr(self.searcher, "unfinished", ()))
        # New trials are held only while others live: with none left Tune asks for a new one, and not the scheduler.
        if not restarts and (self.capacity < 1 or (self.holds_new and self._live)):
            return None
        suggestion = self.searcher.suggest(trial_id)
        self.is_empty = not isinstance(suggestion, dict)
        if not self.is_empty:
            self._live.add(trial_id)
        return None if self.is_empty and self._stays_open and self._live else suggestion

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self._live.discard(trial_id)
        self._paused.discard(trial_id)
        self.searcher.on_trial_complete(trial_id, result=result, error=error)
