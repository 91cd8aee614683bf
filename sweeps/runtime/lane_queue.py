"""Queue of the trials that are in a lane of one slot or wait for one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Set

from sweeps.runtime.slot_queue import SlotQueue
from sweeps.runtime.trial_assignment import Assignment


class LaneQueue(SlotQueue):
    """Queue of a slot whose workers train several trials at a time. Only the main worker takes trials from it, and its
    assignments are those that wait for a lane."""

    def __init__(self, alone: Set[str] = frozenset()) -> None:
        """
        Args:
            alone: Trials that must be the only one in the lanes of their slot, which may change. While the slot has
                such a trial, its workers train one trial at a time.
        """
        super().__init__()
        self._alone = alone
        self.occupied: set[tuple[str, int]] = set()
        """Trial and attempt in each occupied lane."""
        self.has_trained = False
        """Whether the slot's workers have taken a trial."""
        self._left_at = time.monotonic()

    @property
    def is_open(self) -> bool:
        """Whether the slot accepts trials."""
        return not (self.is_closed or self.is_ending)

    @property
    def num_trials(self) -> int:
        """Number of trials that are in a lane or wait for one."""
        return len(self.occupied) + len(self._assignments)

    @property
    def has_alone(self) -> bool:
        """Whether one of the slot's trials must train alone."""
        trials = [trial for trial, _ in self.occupied] + [each.trial for each in self._assignments]
        return not self._alone.isdisjoint(trials)

    @property
    def idle_s(self) -> float:
        """Seconds since a trial has last left a lane."""
        return time.monotonic() - self._left_at

    async def wait_for_trial(self, search_over: asyncio.Event, *, is_idle: bool) -> bool:
        """Wait until a trial may be moved into a lane.

        Args:
            search_over: Set when the search starts no further trials.
            is_idle: Whether no lane has a trial, so that the slot may be closed.

        Returns:
            False if no trial will come because the slot is closed.
        """
        if is_idle and not self._assignments:
            self._release_when(search_over)
        async with self._changed:
            await self._changed.wait_for(self._is_decided)
        return bool(self._assignments)

    def _is_decided(self) -> bool:
        """Whether a trial may be moved into a lane, or none will come."""
        return not (self.occupied and self.has_alone) if self._assignments else self.is_closed

    def take_up_to(self, number: int) -> list[Assignment]:
        """Move up to ``number`` waiting trials into lanes, first those that must train alone."""
        if self.has_alone:
            number = min(number, 0 if self.occupied else 1)
            self._assignments.sort(key=lambda each: each.trial not in self._alone)
        taken, self._assignments = self._assignments[:number], self._assignments[number:]
        self.occupied |= {each.key for each in taken}
        self.has_trained = self.has_trained or bool(taken)
        return taken

    async def leave(self, trial: str, attempt: int) -> None:
        """Free the lane of a trial."""
        self.occupied.discard((trial, attempt))
        self._left_at = time.monotonic()
        await self.look_again()

    async def look_again(self) -> None:
        """Look again whether a waiting trial may be moved into a lane."""
        async with self._changed:
            self._changed.notify_all()

    def is_waiting(self, trial: str, attempt: int) -> bool:
        return (trial, attempt) in [each.key for each in self._assignments]

    def withdraw(self, trial: str, attempt: int) -> bool:
        """Remove a waiting trial; return whether it was waiting."""
        was_waiting = self.is_waiting(trial, attempt)
        self._assignments = [each for each in self._assignments if each.key != (trial, attempt)]
        return was_waiting

    def withdraw_beyond(self, lanes: int = 0) -> list[Assignment]:
        """Remove and return the waiting trials, except as many as this number of lanes has room for."""
        room = max(0, lanes - len(self.occupied))
        self._assignments, beyond = self._assignments[:room], self._assignments[room:]
        return beyond
