"""Nodes under check because a trial failed on them in a way that a bad node may cause."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable

from sweeps.runtime.cluster import free_nodes
from sweeps.runtime.node_resources import node_id
from sweeps.runtime.slot_queue import SlotQueue
from sweeps.runtime.trials_at_once import Workers


class SuspectedNodes:
    """The nodes of failed attempts, from the failure to the result of their check."""

    def __init__(self) -> None:
        self._checks: list[tuple[tuple[str, ...], asyncio.Event]] = []
        """Nodes of each attempt, and an event that is set when they have been checked."""

    def add(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Mark the nodes of an attempt as suspects until ``checked``; return them."""
        if nodes:
            self._checks.append((nodes, asyncio.Event()))
        return nodes

    def checked(self, nodes: Collection[str]) -> None:
        """End the suspicion of an attempt's nodes, whatever the result of the check."""
        found = next((each for each in self._checks if each[0] == tuple(nodes)), None)
        if found is not None:
            self._checks.remove(found)
            found[1].set()

    async def wait(self, nodes: tuple[str, ...], timeout_s: float) -> None:
        """Wait until an attempt's nodes have been checked, or for ``timeout_s``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for suspected, done in [*self._checks]:
                    if suspected == nodes:
                        await done.wait()

    async def left_out(self, workers: Workers, avoided: Collection[str], idle: Iterable[SlotQueue]) -> tuple[str, ...]:
        """Return the ids of suspected nodes to avoid, if the other nodes have room for a trial's workers now; otherwise
        none, so that no trial waits for a check that another trial caused.

        Args:
            workers: Number, resources and placement of the workers.
            avoided: Ids of nodes on which they are not placed in any case.
            idle: Slots without a trial, whose resources count as room because they are freed for waiting workers.
        """
        suspected = tuple({node: None for nodes, _ in self._checks for node in nodes})
        if not suspected:
            return ()
        nodes = {node_id(each): dict(each) for each in await asyncio.to_thread(free_nodes)}
        for slot in idle:
            for node in filter(nodes.__contains__, slot.group.nodes):  # missing nodes are dead
                for name, amount in slot.group.reserved.items():
                    nodes[node][name] = nodes[node].get(name, 0.0) + amount
        others = [node for name, node in nodes.items() if name not in {*suspected, *avoided}]
        return suspected if workers.fit_on(others) else ()
