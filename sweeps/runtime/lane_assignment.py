"""Part of the broker for slots that train several trials at a time: it owns their worker groups, which outlive the
trials' actors, and assigns trials to lanes."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import ray

from sweeps.runtime.attachment import NotCurrent
from sweeps.runtime.attempt import Attempt, StopRequest, causes
from sweeps.runtime.events import Ended
from sweeps.runtime.lane_queue import LaneQueue
from sweeps.runtime.lost_worker import NODE_DIED
from sweeps.runtime.slot_queue import IdleSlots, SlotQueue
from sweeps.runtime.trial_assignment import Assignment
from sweeps.runtime.worker_group_spec import WorkerGroupSpec
from sweeps.worker_error import WorkerError

LEAVES_WITHIN_S = 20.0
"""Minimum seconds that a trial gets to leave its lane after its actor's death, before it starts again."""
LONGEST_LEAVE_S = 900.0
"""Maximum seconds for a trial to leave its lane while other trials of its group post something, such as during the
evaluation of one of them."""
TRAINS_ALONE = (
    "its workers died or hung while they trained several trials, any of which may be the cause; each trains alone "
    "until its next report, and only a failure of one alone counts"
)
"""Message about trials that continue after the workers of their group have died or hung."""
OTHERS_TRAIN_ALONE = "another trial must train alone on these workers until its next report"
MOST_EXCUSES = 3
"""Number of a trial's attempts that do not count as failed when workers of several trials die or hang; later ones
count, since trials may also die only together, for example for lack of memory."""
StartGroup = Callable[[str, WorkerGroupSpec], Any]
"""Starts the worker group of the named slot, and returns the handle of its owner."""


class SharedSlots(ABC):
    """Part of the broker that manages slots with lanes. Public methods are called through a Ray actor handle."""

    def __init__(self, start_group: StartGroup | None) -> None:
        self._attempts: dict[str, Attempt] = {}
        """The current attempt of each trial."""
        self._slots: dict[str, SlotQueue] = defaultdict(SlotQueue)
        """All slots, with and without lanes."""
        self._search_over = asyncio.Event()
        self._idle = IdleSlots(self._slots)
        self._start_group, self._groups_started, self._most_groups = start_group, 0, 1
        self._lanes: tuple[int, str | None] = 1, None
        self._owners: dict[str, Any] = {}
        self._specs: dict[str, WorkerGroupSpec] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._alone: set[str] = set()
        """Trials that train alone until their next report, since their group has failed with several trials."""
        self._shared_ends: set[tuple[str, int]] = set()
        """Trial and attempt in each lane of groups that have failed with several trials."""

    @abstractmethod
    async def end(self, event: Ended) -> None:
        """End an attempt."""

    @abstractmethod
    async def forget_slot(self, slot: str) -> None:
        """Remove a slot whose workers are gone."""

    # --- called by the driver and by a trial's Tune actor -------------------------------------------------

    async def set_groups(self, most: int) -> None:
        """Set the number of worker groups with lanes for which there is room at a time. Trials of a group that has not
        started, and has no room now, go to the other groups: new trials would keep those busy, so that the group would
        never get their resources. If there is room for further groups, trials that wait for a lane go to these."""
        self._most_groups = most
        queues = self._open_groups()
        starting = [(name, queue, self._specs[name]) for name, queue in queues.items() if not queue.has_started]
        for name, queue, spec in starting[::-1][: max(0, len(queues) - most)]:
            await queue.close()
            for each in queue.withdraw_beyond():
                await self.assign_lane(each, spec)
            self._begin_task(self._end_group(name, "there is no room for its workers any more"))
        if len(queues) < most:
            for name, queue in queues.items():
                for each in queue.withdraw_beyond(self._number_of_lanes(name)):
                    await self.assign_lane(each, self._specs[name])

    async def end_groups(self) -> None:
        """End all worker groups with lanes, because the sweep has ended."""
        await asyncio.gather(*(self._end_group(slot, "the sweep has ended") for slot in [*self._owners]))

    async def assign_lane(self, assignment: Assignment, spec: WorkerGroupSpec) -> None:
        """Give a trial to the slot with the fewest trials, or to a new one while there is room.

        Raises:
            NotCurrent: This is not the trial's current attempt.
        """
        attempt = self._needed(*assignment.key)
        for name, its_spec in [*self._specs.items()]:
            if its_spec != spec or set(self._slots[name].group.nodes) & set(spec.avoid):
                await self._slots[name].close()  # the trials that it has continue
        slot = self._emptiest(assignment.trial) or self._new(f"slot-{assignment.trial}-{assignment.attempt}", spec)
        attempt.assign(slot, assignment.log_folder)
        await self._slots[slot].add(replace(assignment, failures=attempt.failures))
        self._withdraw(attempt)  # it may have begun after the request
        self._idle.free_if_others_wait()

    def _emptiest(self, trial: str) -> str | None:
        """Return the slot with the fewest trials; None if another worker group should be started. Among slots with as
        many lanes as trials, or with fewer trials, those that must train alone go to the same slots if possible."""
        queues, is_alone = self._open_groups(), trial in self._alone

        def order(name: str) -> tuple[bool, bool, int]:
            number = queues[name].num_trials
            return number >= self._number_of_lanes(name), number > 0 and queues[name].has_alone != is_alone, number

        emptiest = min(queues, key=order, default=None)
        if emptiest is None or (queues[emptiest].num_trials and len(queues) < self._most_groups):
            return None
        return emptiest

    def _number_of_lanes(self, slot: str) -> int:
        """Return the number of trials that a slot's workers train at a time."""
        lanes = self._specs[slot].lanes
        assert lanes is not None
        return min(lanes.number, self._lanes[0]) if lanes.is_found_while_training else lanes.number

    def _open_groups(self) -> dict[str, LaneQueue]:
        """Return the slots with lanes that accept trials, by name, oldest first."""
        return {name: queue for name in self._specs if (queue := self._lanes_of(name)) is not None and queue.is_open}

    def _new(self, name: str, spec: WorkerGroupSpec) -> str:
        self._groups_started += 1
        slot = f"{name}-{self._groups_started}"
        assert self._start_group is not None
        self._slots[slot], self._specs[slot] = LaneQueue(self._alone), spec
        self._owners[slot] = self._start_group(slot, spec)
        self._begin_task(self._watch(slot, self._owners[slot]))
        return slot

    def _begin_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self, slot: str, owner: Any) -> None:
        """Wait for the death of the process that owns a worker group; the group's workers die with it."""
        try:
            await owner.wait.remote()
        except ray.exceptions.RayError as error:
            if slot in self._owners:
                reason = str(error).strip().partition("\n")[0]
                text = f"the process that runs its worker group was lost: {reason}"
                lost = WorkerError("lost", type(error).__name__, text, 0, num_workers=1, node="", traceback=str(error))
                await self.slot_ended(slot, text, (lost,))

    async def leave_lane(self, trial: str, number: int, within_s: float) -> None:
        """Remove a trial from its lane, or from the queue for one. If it does not leave, or has hung while it waited,
        its group ends, and the group's other trials continue elsewhere.

        Args:
            within_s: Maximum seconds to wait while the group is silent; three times the workers' longest silence if
                that is longer.
        """
        attempt = self._attempts.get(trial)
        if attempt is None or attempt.number != number or (queue := self._lanes_of(attempt.slot)) is None:
            return
        hung = attempt.end is not None and queue.is_waiting(trial, number)
        attempt.request_stop(StopRequest.SAVE)
        self._withdraw(attempt)
        asked = time.monotonic()
        latest = asked + LONGEST_LEAVE_S
        while await attempt.wait_for_end(within_s) is None and self._silent_s(queue) < time.monotonic() - asked:
            asked = time.monotonic()  # workers may evaluate or prepare other trials for long
            if asked > latest:
                break
        if hung or (trial, number) in queue.occupied:
            did_not = "start" if hung else "stop"
            await self._end_group(attempt.slot, f"trial {trial}, which shares its workers, did not {did_not}")

    def _withdraw(self, attempt: Attempt) -> None:
        """End an attempt if it was asked to stop and its workers have not begun it, so that there is nothing to save.
        The workers might never notice the request: they may wait for room on the cluster, or for a lane."""
        queue = self._slots.get(attempt.slot) if attempt.stop >= StopRequest.SAVE else None
        if queue is not None and queue.withdraw(attempt.trial, attempt.number):
            attempt.finish(Ended(attempt.trial, attempt.number))
            if isinstance(queue, LaneQueue):  # if it had to train alone, others waited
                self._begin_task(queue.look_again())

    async def _end_group(self, slot: str, reason: str) -> None:
        """End the workers of a slot immediately.

        Args:
            slot: The slot.
            reason: Reason that is shown for the slot's other trials.
        """
        owner, queue = self._owners.get(slot), self._lanes_of(slot)
        if queue is not None:
            queue.withdraw_beyond()
            await queue.close()
        for attempt in self._attempts_of(slot):
            continues = attempt.stop < StopRequest.SAVE  # trials that were asked to stop do not continue
            attempt.move(reason)
            attempt.finish(Ended(attempt.trial, attempt.number, reason if continues else None))
        if owner is not None:
            with contextlib.suppress(ray.exceptions.RayError):
                await owner.close.remote()
        await self.forget_slot(slot)

    # --- called by the workers of a slot and its owner ----------------------------------------------------

    async def wait_for_trial(self, slot: str, is_idle: bool = False) -> bool:
        """Wait until a trial is queued for a lane of the slot."""
        queue = self._lanes_of(slot)
        return queue is not None and await queue.wait_for_trial(self._search_over, is_idle=is_idle)

    async def take_trials(self, slot: str, most: int) -> list[Assignment]:
        """Move at most ``most`` waiting trials into the slot's lanes."""
        queue = self._lanes_of(slot)
        return [] if queue is None else queue.take_up_to(most)

    async def lane_ended(self, slot: str, event: Ended) -> None:
        """End the attempt of a trial that has left its lane."""
        if (queue := self._lanes_of(slot)) is not None:
            await queue.leave(event.trial, event.attempt)
        await self.end(event)

    async def lanes(self) -> tuple[int, str | None]:
        """Return the number of trials that a group should train at a time, if it is found while training, and a
        description of the measurements once the number is final."""
        return self._lanes

    async def set_lanes(self, number: int, reason: str | None) -> None:
        """Set the result of ``lanes``. If there are several groups, the first one that finds the number determines it
        for all; until then, the group that has progressed furthest does."""
        if self._lanes[1] is None and (reason is not None or number > self._lanes[0]):
            self._lanes = number, reason

    async def forget_lanes(self) -> None:
        """Let further groups find the number of trials at a time anew, since they train on another base model."""
        self._lanes = 1, None

    async def worker_of_slot_failed(self, slot: str, error: WorkerError) -> None:
        """Record a worker's error as an error of all trials of its slot."""
        for attempt in self._attempts_of(slot):
            attempt.add_error(error)

    async def slot_ended(self, slot: str, error: str | None, lost: tuple[WorkerError, ...] = ()) -> None:
        """End the attempts of a slot with lanes whose workers have returned or are gone. Trials that wait for a lane go
        to another slot, unless these workers have never trained: then new workers might not train, either.

        Args:
            error: Error of the workers; None if they ended as requested.
        """
        queue, spec = self._lanes_of(slot), self._specs.get(slot)
        self._forget_group(slot)  # so that it is given no further trials
        if queue is not None and spec is not None and (queue.has_trained or queue.is_closed):
            for each in queue.withdraw_beyond():
                await self.assign_lane(each, spec)
        for attempt in self._attempts_of(slot):
            await self.end(Ended(attempt.trial, attempt.number, error, others=lost))
        if queue is not None:
            queue.occupied.clear()
        await self.forget_slot(slot)

    def _excused(self, attempt: Attempt, end: Ended) -> Ended:
        """Return the end of an attempt whose workers have died or hang. If they trained several trials, any of these
        may be the cause: each continues alone, and the attempt has not failed, unless this has happened to its trial
        too often."""
        queue = self._lanes_of(attempt.slot)
        in_lanes = set() if queue is None else queue.occupied
        if len(in_lanes) < 2 or (attempt.trial, attempt.number) not in in_lanes or attempt.is_moving:
            return end
        self._alone.update(trial for trial, _ in in_lanes)
        self._shared_ends |= in_lanes
        if attempt.stop >= StopRequest.SAVE:  # trials that were asked to stop do not continue
            return replace(end, error=None)
        is_excused = sum(trial == attempt.trial for trial, _ in self._shared_ends) <= MOST_EXCUSES
        return replace(end, moved=TRAINS_ALONE) if is_excused else end

    async def _make_room(self, attempt: Attempt, *, done: bool) -> None:
        """Let a trial that trained alone share workers again, once it has a new report; move it if others wait to train
        alone."""
        self._alone.discard(attempt.trial)
        if (queue := self._lanes_of(attempt.slot)) is not None:
            if queue.has_alone and not done:
                attempt.move(OTHERS_TRAIN_ALONE)
            await queue.look_again()

    def _forget_group(self, slot: str) -> None:
        """Drop the owner of a slot's workers, which have ended; the owner's process then ends."""
        self._owners.pop(slot, None)
        self._specs.pop(slot, None)

    def _lanes_of(self, slot: str) -> LaneQueue | None:
        """Return the lane queue of a slot; None if the slot has no lanes, has ended, or belonged to another broker
        process."""
        queue = self._slots.get(slot)
        return queue if isinstance(queue, LaneQueue) else None

    def _waits_for_lane(self, attempt: Attempt) -> bool:
        """Whether an attempt waits for another trial to leave its lane. After the loss of a node there may be more
        trials than lanes."""
        queue = self._lanes_of(attempt.slot)
        return queue is not None and bool(queue.occupied) and queue.is_waiting(attempt.trial, attempt.number)

    def _silence(self, attempt: Attempt, hang_timeout_s: float, start_timeout_s: float) -> tuple[float, float]:
        """Return the seconds since the workers of an attempt last posted something, and the maximum; see
        ``Attempt.silence``. Trials in the lanes of one slot count as silent only if all of them are; those that wait
        for a lane, once no trial is in one."""
        silent, allowed = attempt.silence(hang_timeout_s, start_timeout_s)
        queue = self._lanes_of(attempt.slot)
        if queue is not None and (attempt.trial, attempt.number) in queue.occupied:
            silent = min(silent, self._silent_s(queue))
        elif queue is not None and not queue.occupied:
            silent = min(silent, queue.idle_s)
        return silent, allowed

    def _silent_s(self, queue: LaneQueue) -> float:
        """Return the seconds since the workers of a slot last posted something about any trial in its lanes; 0 while a
        trial waits for a decision of the driver, since the others wait with it. A trial that was asked to stop waits
        for no decision."""
        attempts = [(self._attempts.get(trial), number) for trial, number in queue.occupied]
        current = [each for each, number in attempts if each is not None and each.number == number]
        silent = (
            each.silent_s if each.stop >= StopRequest.SAVE else each.silence(0.0)[0]
            for each in current
            if each.end is None
        )
        return min(silent, default=math.inf)

    def _current(self, trial: str, number: int) -> Attempt | None:
        """Return the trial's current attempt if it has this number, else None."""
        attempt = self._attempts.get(trial)
        return attempt if attempt is not None and attempt.number == number else None

    def _needed(self, trial: str, number: int) -> Attempt:
        """Return the trial's current attempt.

        Raises:
            NotCurrent: It has another number.
        """
        if (attempt := self._current(trial, number)) is None:
            raise NotCurrent
        return attempt

    def _attempts_of(self, slot: str) -> list[Attempt]:
        """Return the attempts that a slot's workers have not ended yet."""
        return [each for each in self._attempts.values() if each.slot == slot and each.end is None]


def is_workers_death(end: Ended) -> bool:
    """Whether an attempt has ended since the process of a worker died, and not its node."""
    is_nodes = any(NODE_DIED in each.message or each.node_was_taken for each in causes(end))
    return end.failure is not None and end.failure.kind in ("lost", "peer") and not is_nodes
