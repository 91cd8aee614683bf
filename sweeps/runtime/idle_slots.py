"""Slots without a trial, which are freed when the workers of other slots find no room on the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from sweeps.compat.ray_core import groups_without_nodes
from sweeps.runtime.slot_queue import SlotQueue

LOOK_EVERY_S = 2.0
"""Seconds between two checks whether the workers of a slot wait for room."""


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
