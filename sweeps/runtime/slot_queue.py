"""Queues of the slots' assignments, at which their workers wait for their next trials; slots without a trial are freed
when the workers of other slots find no room on the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sweeps.compat.ray_core import groups_without_nodes

if TYPE_CHECKING:
    from sweeps.runtime.attempt import Attempt

IDLE_S = 5.0
"""Seconds that a slot waits for a paused or failed trial once the search starts no new trials: new workers would take
about as long to start."""
LOOK_EVERY_S = 2.0
"""Seconds between two checks whether the workers of a slot wait for room."""


@dataclass(frozen=True)
class StartedGroup:
    """A worker group that has started; sequences are by rank."""

    placement_group: Any = None
    reserved: Mapping[str, float] = field(default_factory=dict)
    """Resources that each worker holds."""
    workers: Sequence[Any] = ()
    """Actors of the workers."""
    locations: tuple[str, ...] = ()
    """``host`` or ``host/gpu`` of each worker."""
    processes: Sequence[tuple[str, int]] = ()
    """Id of the node, and process id, of each worker."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Id of each worker's node, which several may share."""
        return tuple(node for node, _ in self.processes)


class SlotQueue:
    """Queue of one slot's successive assignments, with the worker group that the slot has started."""

    def __init__(self) -> None:
        self.group = StartedGroup()
        """The slot's worker group; empty before it has started."""
        self.has_started = False
        self.attempt: Attempt | None = None
        """The attempt that the slot was last given; of no account in a slot with lanes."""
        self.is_closed = False
        self.is_ending = False
        """Whether Ray Train is about to end the slot's workers."""
        self._assignments: list[Any] = []
        self._changed = asyncio.Condition()
        self._is_reserved = False
        self._release: asyncio.Task[None] | None = None
        """Task that closes the slot unless it is given a trial first."""

    @property
    def is_starting(self) -> bool:
        """Whether the slot has a trial whose workers have not started yet."""
        return bool(self._assignments) and not self.has_started and not self.is_closed

    @property
    def is_idle(self) -> bool:
        """Whether the slot has no trial and is not kept for one."""
        return self._release is not None and not self._release.done() and not self._release.cancelling()

    def reserve(self) -> None:
        """Keep the slot for a trial that is about to be assigned, even if the workers have yet to ask for it."""
        self._is_reserved = True
        if self._release is not None:
            self._release.cancel()

    async def add(self, assignment: Any) -> None:
        self.reserve()
        async with self._changed:
            self._assignments.append(assignment)
            self._is_reserved = False
            self._changed.notify_all()

    async def close(self) -> None:
        """Give the slot no further trials, so that its workers return."""
        async with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def release_when_idle(self, index: int, search_over: asyncio.Event) -> None:
        """Schedule the slot's closing if its workers have finished a trial and have no next one.

        Args:
            index: Number of the assignment that the workers ask for, from 0.
            search_over: Set when the search starts no further trials.
        """
        if index > 0 and index == len(self._assignments):
            self._release_when(search_over)

    def _release_when(self, search_over: asyncio.Event) -> None:
        if not self._is_reserved and (self._release is None or self._release.done()):
            self._release = asyncio.create_task(self._close_after(search_over))

    async def _close_after(self, search_over: asyncio.Event) -> None:
        """Close the slot after a while: Tune may keep the actor of an ended trial, and with it the slot, for a trial
        that never comes."""
        await search_over.wait()
        await asyncio.sleep(IDLE_S)
        await self.close()

    def withdraw(self, trial: str, attempt: int) -> bool:
        """Remove a trial whose workers have not started, and close the slot; return whether it was removed. No worker
        waits for this change."""
        if not self.is_starting:
            return False
        self._assignments, self.is_closed = [], True
        return True

    async def take(self, index: int) -> Any:
        """Wait for the assignment of this number; None if there will be none."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.is_closed or index < len(self._assignments))
        if index >= len(self._assignments):
            return None
        if index:
            self._assignments[index - 1] = None  # no worker asks for it again
        return self._assignments[index]


class IdleSlots:
    """The slots of a sweep that currently have no trial."""

    def __init__(self, slots: Mapping[str, SlotQueue]) -> None:
        self._slots = slots
        self._looks: asyncio.Task[None] | None = None

    @property
    def queues(self) -> list[SlotQueue]:
        return [queue for queue in self._slots.values() if queue.is_idle]

    async def free(self) -> None:
        """Close the idle slots, so that their workers return."""
        for queue in self.queues:
            await queue.close()

    def free_if_others_wait(self) -> None:
        """Free the idle slots as soon as the workers of a starting slot find no room. After the loss of nodes, the
        search may start no trial for the idle slots until a waiting trial has ended."""
        if self._looks is None or self._looks.done():
            self._looks = asyncio.create_task(self._free_while_others_start())

    async def _free_while_others_start(self) -> None:
        while any(queue.is_starting for queue in self._slots.values()):
            await asyncio.sleep(LOOK_EVERY_S)
            if self.queues:
                waiting = await asyncio.to_thread(groups_without_nodes)
                if waiting:
                    await self.free()
