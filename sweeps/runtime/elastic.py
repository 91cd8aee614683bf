"""Control of elastic trials: asks running trials to change their number of workers, and lets new trials wait for
workers.

A trial that changes saves its state at its next step, as if it were stopped, and its Tune actor begins it again with
the new number of workers. Tune does not notice the change, which does not count as a failure. Before a trial grows,
processes for its new workers are started while it continues to train; once no further trial will begin, they are
started before another trial ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence

import ray

from sweeps.runtime.attempt import Attempt, StopRequest
from sweeps.runtime.cluster import free_nodes
from sweeps.runtime.elastic_shares import WorkerShares
from sweeps.runtime.events import Ended
from sweeps.runtime.lost_worker import NODE_DIED
from sweeps.runtime.node_resources import node_id
from sweeps.runtime.slot_queue import SlotQueue
from sweeps.runtime.spare_processes import Place, SpareProcesses, start_spares_and_wait
from sweeps.runtime.trials_at_once import fits_on

ROOM_KNOWN_WITHIN_S = 30.0
"""Maximum seconds until the driver has noticed that a node is gone."""
LOOK_EVERY_S = 1.0
"""Seconds between two checks whether running trials can get more workers; free workers are left to a trial that starts
within this time."""


class ElasticWorkers:
    """Part of the broker that gives a sweep's elastic trials the numbers of workers that ``WorkerShares`` decides."""

    def __init__(
        self,
        attempts: Mapping[str, Attempt],
        slots: Mapping[str, SlotQueue],
        spares: SpareProcesses,
        is_to_stop: Callable[[str], bool],
    ) -> None:
        """
        Args:
            is_to_stop: Whether a trial is to stop, for which it does not wait for workers.
        """
        self._attempts, self._slots, self._spares, self._is_to_stop = attempts, slots, spares, is_to_stop
        self._shares = WorkerShares()
        self._changed = asyncio.Event()
        self._room_known = asyncio.Event()
        """Set while the free room for workers is known: cleared when a node dies, and set again by the driver's next
        report of it."""
        self._claims: dict[str, object] = {}
        """The last claim of each trial; earlier claims belong to actors that have died."""
        self._beginning: set[str] = set()
        """Trials that have claimed workers and whose attempt has not begun yet."""
        self._prepared: dict[str, asyncio.Task[None]] = {}
        """Trials that will grow when the processes for their new workers have started."""
        self._ahead: asyncio.Task[None] | None = None
        """Task that starts processes for the trial that will grow when another one ends."""
        self._resized_at: dict[str, float] = {}
        """Time at which each trial was asked to change its number of workers."""
        self._looks: asyncio.Task[None] | None = None

    def end_waiting(self) -> None:
        """End the waits of trials that are to stop now."""
        self._changed.set()

    def set_room(self, places: int, expected: int, to_come: int) -> None:
        """Set the resources that elastic trials share."""
        self._shares.set_room(places, expected, to_come)
        self._changed.set()
        self._room_known.set()
        if self._looks is None:
            self._looks = asyncio.create_task(self._look_on())

    async def claim(self, trial: str, numbers: Sequence[int], total_steps: int | None, previous: str | None) -> int:
        """Wait until a trial gets workers with which it can begin.

        Args:
            trial: Id of the trial.
            numbers: Numbers of workers that it may have, ascending.
            total_steps: Step at which it will end, if that is known.
            previous: Trial that had the workers of the same actor before.

        Returns:
            Number of its workers; of no account if the trial has claimed again or was abandoned meanwhile.
        """
        claim = self._claims[trial] = object()
        if previous is not None and previous != trial and self._is_leaving(previous):
            self.release(previous)
        self._shares.moved(trial)
        self._changed.set()

        def remaining_s() -> float:
            attempt = self._attempts.get(trial)
            pace = None if attempt is None else attempt.pace()
            if attempt is None or pace is None:
                return math.inf
            # A trial of unknown length is expected to last as long again as it has lasted.
            return attempt.trained_s if total_steps is None else (total_steps - pace[0]) * pace[1]

        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._room_known.wait(), ROOM_KNOWN_WITHIN_S)
        while self._claims.get(trial) is claim:
            self._changed.clear()
            number = numbers[0] if self._is_to_stop(trial) else self._shares.claim(trial, numbers, remaining_s)
            if number is not None:
                self._beginning.add(trial)
                return number
            await self._look()
            await self._changed.wait()
        return numbers[0]

    def lose_node(self, end: Ended) -> str | None:
        """Return a message for the user if a node has died and an elastic trial continues on other workers, which is no
        failure; otherwise None."""
        lost = [each.node for each in (end.failure, *end.others) if each is not None and NODE_DIED in each.message]
        if end.trial not in self._shares.trials or not lost:
            return None
        self._room_known.clear()  # workers must not be requested on a node that is gone
        return f"its node {lost[0]} has died"

    def began(self, trial: str) -> None:
        """Record that a trial's attempt has begun with the workers that it claimed."""
        self._beginning.discard(trial)

    def trained(self, trial: str) -> None:
        """Record that the workers of a trial have begun to train."""
        asked = self._resized_at.pop(trial, None)
        if asked is not None:
            self._shares.observe_resize(time.monotonic() - asked)

    def release(self, trial: str) -> None:
        """Free a trial's workers for other trials, because it has ended or is paused."""
        self._shares.release(trial)
        self._resized_at.pop(trial, None)
        self._changed.set()

    def abandon(self, trial: str) -> None:
        """Free a trial's workers because its actor has died for good, whatever it has claimed or waits for."""
        self._claims.pop(trial, None)
        self._beginning.discard(trial)
        self.release(trial)

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self._look()

    async def _look(self) -> None:
        await self._free_ended()
        for trial, number in self._shares.decide(self._may_change).items():
            if number > self._shares.workers_of(trial):
                self._prepared[trial] = asyncio.create_task(self._grow(trial, number))
            else:
                self._change(trial, number)
        self._prepare_next()

    def _prepare_next(self) -> None:
        """Start processes ahead for the trial that will grow when another one ends."""
        if self._ahead is not None and not self._ahead.done():
            return
        if (growth := self._shares.next_growth(self._may_change)) is not None:
            trial, number = growth
            slot = self._attempts[trial].slot
            missing = self._spares.prepare(slot, number, {})
            if missing:
                self._ahead = asyncio.create_task(_start(missing, self._slots[slot]))

    async def _grow(self, trial: str, number: int) -> None:
        """Start processes for a trial's new workers, and ask the trial to change if that is still possible."""
        try:
            if self._ahead is not None:
                await self._ahead
            slot = self._attempts[trial].slot
            if (queue := self._slots.get(slot)) is not None:
                await _start(self._spares.prepare(slot, number, await _free_workers(queue)), queue)
        finally:
            del self._prepared[trial]
        if trial not in self._shares.trials or self._shares.workers_of(trial) >= number:
            return  # it has ended, or has failed and begun again with them
        if self._may_change(trial) and not self._shares.has_waiting:
            self._change(trial, number)
        else:
            self._shares.stay(trial)
            self._changed.set()

    def _change(self, trial: str, number: int) -> None:
        before = self._shares.workers_of(trial)
        why = "no trial waits for free workers" if number > before else "another trial waits"
        self._attempts[trial].move(f"it changes from {before} to {number} workers, since {why}", in_time=False)
        self._resized_at[trial] = time.monotonic()

    async def _free_ended(self) -> None:
        """Free the workers of ended trials whose slot is closed, and close the slots of ended trials whose workers
        others need."""
        for trial in self._shares.trials:
            attempt = self._attempts.get(trial)
            if attempt is None or trial in self._beginning:
                continue
            if attempt.end is None:
                if not attempt.is_moving and trial not in self._prepared:
                    self._shares.stay(trial)
                continue
            if attempt.end.moved is not None:
                continue
            slot = self._slots.get(attempt.slot)
            if slot is not None and slot.is_idle and (self._shares.has_waiting or self._shares.has_more_than_expected):
                await slot.close()
            if slot is None or slot.is_closed:
                self.release(trial)

    def _is_leaving(self, trial: str) -> bool:
        """Whether a trial has ended or is paused, and has not begun again with other workers."""
        attempt = self._attempts.get(trial)
        if attempt is None or trial in self._beginning:
            return False
        return attempt.stop >= StopRequest.SAVE and not attempt.is_moving

    def _may_change(self, trial: str) -> bool:
        attempt = self._attempts.get(trial)
        return attempt is not None and attempt.may_change_workers


async def _free_workers(slot: SlotQueue) -> dict[str, int]:
    """Return for each node, by id, the number of further workers of the slot for which it has room."""
    if not slot.group.reserved:
        return {}
    with contextlib.suppress(ray.exceptions.RayError):
        return {node_id(each): fits_on(slot.group.reserved, each) for each in await asyncio.to_thread(free_nodes)}
    return {}


async def _start(missing: Mapping[Place, int], slot: SlotQueue) -> None:
    """Start spare processes for a slot's trial and wait for them; if that fails, its new workers only start more
    slowly."""
    if missing:
        with contextlib.suppress(LookupError, ConnectionError, ray.exceptions.RayError):
            await asyncio.to_thread(start_spares_and_wait, missing, slot.group.workers[0])
