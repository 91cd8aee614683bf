"""Runs the steps of a group's lanes: all lanes take one step at a time and share collective operations."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import torch

from sweeps_train.data.global_batches import GlobalBatch
from sweeps_train.lanes.group import Group
from sweeps_train.lanes.lane import Lane
from sweeps_train.workers.exchange import Rows, exchange_together

Life = Generator[Sequence[float] | None, Rows | None, None]
"""Coroutine of a lane from its first step to its last: yields None to take an optimizer step, or numbers to exchange
between workers."""


class Lockstep:
    """Advances the coroutines of a group's lanes in the same order on all workers."""

    def __init__(self, group: Group):
        self.group = group
        self._lives: dict[Lane, Life] = {}
        self._waiting: dict[Lane, Sequence[float] | None] = {}
        """Lanes that have not ended, and their last yielded values."""

    def run(self, lane: Lane, life: Life) -> None:
        """Train one lane to its end."""
        self.begin(lane, life)
        while self._waiting:
            self.advance()

    def begin(self, lane: Lane, life: Life) -> None:
        """Start the coroutine of a lane."""
        self._lives[lane] = life
        self._resume(lane, None)

    def advance(self) -> None:
        """Take one optimizer step in each lane, after the actions due before it."""
        while numbers := {lane: each for lane, each in self._waiting.items() if each is not None}:
            exchanged = exchange_together(self.group.workers, [*numbers.values()])
            for lane, rows in zip(numbers, exchanged, strict=True):
                self._resume(lane, rows)
        if self._waiting:
            self._step([*self._waiting])
            for lane in [*self._waiting]:
                self._resume(lane, None)

    def _resume(self, lane: Lane, reply: Rows | None) -> None:
        try:
            self._waiting[lane] = self._lives[lane].send(reply)
        except StopIteration:
            self._forget(lane)

    def _forget(self, lane: Lane) -> None:
        del self._lives[lane]
        self._waiting.pop(lane, None)

    def _step(self, lanes: Sequence[Lane]) -> None:
        batches = {lane: lane.begin_step() for lane in lanes}
        first, size = lanes[0], sum(each.size for each in batches.values())
        group = self.group
        with group.communication.watching(first.progress.step), group.flops.counting(first.strategy, size):
            losses = self._add_gradients(batches)
            for lane, batch in batches.items():
                lane.end_step(batch, losses[lane])

    def _add_gradients(self, batches: dict[Lane, GlobalBatch]) -> dict[Lane, torch.Tensor]:
        """Add the gradients of each lane's batch; return this worker's share of each summed loss."""
        return {
            lane: lane.memory.backward(each.micro_batches, each.size, lane.loss_scale(each))
            for lane, each in batches.items()
        }
