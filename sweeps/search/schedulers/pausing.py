"""Base of the schedulers that pause trials and resume them later."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from sweeps.config.objectives import Objectives
from sweeps.search.schedulers.decisions import DecisionLog
from sweeps.search.schedulers.places import Places
from sweeps.search.schedulers.scheduler import Choice, ScheduledTrial, Scheduler, Turn

RESUMED = {"event": "resumed"}
"""The decision that a paused trial continues."""


class PausingScheduler(Scheduler, ABC):
    """A scheduler that pauses trials, and is asked after every event which one to resume."""

    resumes_first = True
    """Whether paused trials run before new ones."""

    def __init__(self, objectives: Objectives, decisions: DecisionLog | None = None):
        super().__init__(objectives, decisions)
        self._paused: set[str] = set()
        """Ids of the paused trials."""
        self._not_restored = set(self._decisions.trials)
        """Ids of the trials of earlier sessions that were not added yet."""
        self._none_to_resume: tuple[object, ...] = ()
        """State of the search at the last check that resumed no trial."""

    def add(self, trial: ScheduledTrial, places: Places) -> bool:
        """Add a trial. One that an earlier session had paused, or that exceeds the number of trials at a
        time, is paused at once."""
        if trial.id not in self._not_restored:
            return False
        self._not_restored.remove(trial.id)
        waits = trial.id in self._paused or places.capacity < 0
        if waits:
            places.pause(trial.id)
            places.holds_new = True
            self._none_to_resume = ()  # also if it leaves before the next check, which is to let new trials begin
        return waits

    def next(self, live: Sequence[ScheduledTrial], places: Places, *, is_over: bool) -> Turn:
        """Return the next paused trial to resume, if another trial may run, and those to stop.

        Args:
            is_over: Whether the search has a reason to begin no further trial.
        """
        paused = [trial for trial in live if trial.status == "paused"]
        paused_ids = {trial.id for trial in paused}
        places.set_paused(paused_ids)
        is_complete = is_over or (places.is_empty and all(trial.status in ("paused", "ended") for trial in live))
        # Most events are reports between rungs, and ``ready`` looks at all paused trials.
        state = self._decisions.count, places.capacity, places.is_empty, is_complete, paused_ids
        if state == self._none_to_resume and not self.depends_on_time:
            return Turn()
        ready, stopped = self.ready(paused, places, complete=is_complete)
        places.holds_new = self.resumes_first and bool(ready)
        if not ready or places.capacity < 1 or not (self.resumes_first or places.is_empty or is_complete):
            self._none_to_resume = state
            return Turn(stopped=stopped)
        resumed = ready[0]
        places.resume(resumed.id)
        self._decisions.record(resumed.id, RESUMED)
        self._paused.discard(resumed.id)
        return Turn(resumed, stopped)

    @property
    def depends_on_time(self) -> bool:
        """Whether ``ready`` depends on time or anything else besides the decisions and the paused trials; it is then
        called after each event."""
        return False

    @abstractmethod
    def ready(self, paused: Sequence[ScheduledTrial], places: Places, *, complete: bool) -> Choice:
        """Return the paused trials that may be resumed, in this order, and those to stop.

        Args:
            complete: Whether no further trial will be added.
        """
