"""Runs the steps of a group's lanes: all lanes take one step at a time and share collective operations."""

from __future__ import annotations

from collections.abc import Generator, Sequence

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
            del self._lives[lane]
            self._waiting.pop(lane, None)

    def _step(self, lanes: Sequence[Lane]) -> None:
        (lane,) = lanes
        batch = lane.begin_step()
        group = self.group
        with group.communication.watching(lane.progress.step), group.flops.counting(lane.strategy, batch.size):
            loss = lane.memory.backward(batch.micro_batches, batch.size, lane.loss_scale(batch))
            lane.end_step(batch, loss)
