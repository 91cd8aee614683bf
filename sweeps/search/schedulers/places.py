"""Places for the trials of a search that run at once."""

from __future__ import annotations

from collections.abc import Collection


class Places:
    """Counts the running trials, at most ``max_concurrent``. A paused trial does not take a place."""

    def __init__(self, max_concurrent: int):
        self.max_concurrent = max_concurrent
        self.holds_new = False
        """Whether new trials wait until a paused one has continued. New trials are requested before the scheduler is
        asked which paused trial continues."""
        self.is_empty = False
        """Whether the searcher had no new trial at the last request."""
        self._live: set[str] = set()
        self._paused: set[str] = set()

    @property
    def capacity(self) -> int:
        """Number of further trials that may run now; negative if too many were restarted together."""
        return self.max_concurrent - len(self._live - self._paused)

    def may_begin(self) -> bool:
        """Whether a new trial may begin. New trials wait only while another trial is alive and will continue."""
        return self.capacity >= 1 and not (self.holds_new and self._live)

    def begin(self, trial: str) -> None:
        self._live.add(trial)

    def end(self, trial: str) -> None:
        self._live.discard(trial)
        self._paused.discard(trial)

    def pause(self, trial: str) -> None:
        self._paused.add(trial)

    def resume(self, trial: str) -> None:
        self._paused.discard(trial)

    def set_paused(self, trials: Collection[str]) -> None:
        self._paused = set(trials)
