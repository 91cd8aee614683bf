"""Forward and backward passes for all lanes of a group at once, and the exchange of their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sweeps_train.data.sampler import Batch
from sweeps_train.device import empty_cache, sum_type
from sweeps_train.distributed import Workers
from sweeps_train.errors import is_out_of_memory
from sweeps_train.lanes.joint_model import JointModel, parts_of
from sweeps_train.lanes.lane_strategy import LaneStrategy
from sweeps_train.models.causal_lm import SharedBase
from sweeps_train.strategies.all_reduce import average_in_chunks
from sweeps_train.strategies.strategy import on_device


@dataclass(frozen=True)
class Work:
    """One lane's part of a step."""

    strategy: LaneStrategy
    micro_batches: Sequence[Batch]
    """This worker's, on the CPU."""
    scale: float
    """Factor of the losses."""


class JointPasses:
    """Computes the gradients of all lanes. All workers call the same methods with the same lanes."""

    def __init__(self, workers: Workers, base: SharedBase):
        self._workers = workers
        self._model = JointModel(base)
        self._strategies: list[LaneStrategy] = []
        self._most_lanes: int | None = None
        """Lanes in a pass at most, since this worker has run out of memory with more."""

    def use(self, strategies: Sequence[LaneStrategy]) -> None:
        """Train these lanes from now on."""
        self._strategies = list(strategies)
        self._model.adapt([each.task.model for each in strategies])

    def backward(self, work: Sequence[Work], flags: torch.Tensor) -> list[torch.Tensor]:
        """Add the gradients of the lanes' losses, averaged over all workers.

        Args:
            work: Parts of this step, in the order of the lanes that this worker trains; one without batches has failed
                here.
            flags: Numbers that are averaged along, in place.

        Returns:
            This worker's part of the summed loss of each, a scalar on the device.
        """
        losses = self._passes_that_fit(work)
        if self._workers.size > 1:
            self._average(work, flags)
        return losses

    def _passes_that_fit(self, work: Sequence[Work]) -> list[torch.Tensor]:
        """Compute with fewer lanes at a time after running out of memory; other workers need not know."""
        states = [each.strategy.random_numbers.state() for each in work]
        while True:
            try:
                return self._passes(work)
            except RuntimeError as error:
                present = min(len(work), self._most_lanes or len(work))
                if present == 1 or not is_out_of_memory(error):
                    raise
                self._most_lanes = (present + 1) // 2
            # Outside of the except clause: the error's frames hold tensors that are to be freed.
            for each, state in zip(work, states, strict=True):
                each.strategy.discard_gradients()
                each.strategy.random_numbers.restore(state)
            empty_cache(self._workers.device)

    def _passes(self, work: Sequence[Work]) -> list[torch.Tensor]:
        device = self._workers.device
        losses = [torch.zeros((), dtype=sum_type(device), device=device) for _ in work]
        most = self._most_lanes or len(work)
        for number in range(max((len(each.micro_batches) for each in work), default=0)):
            present = [index for index, each in enumerate(work) if number < len(each.micro_batches)]
            for start in range(0, len(present), most):
                chosen = present[start : start + most]
                for index, loss in zip(chosen, self._pass([work[each] for each in chosen], number), strict=True):
                    losses[index] += loss
        return losses

    def _pass(self, work: Sequence[Work], number: int) -> list[torch.Tensor]:
        """Add the gradients of one micro batch of each lane, and return their losses."""
        batches = [on_device(each.micro_batches[number], self._workers.device) for each in work]
        lanes = [(self._strategies.index(each.strategy), each.strategy.random_numbers.dropout) for each in work]
        parts = parts_of(batches, lanes)
        first = work[0].strategy
        with first.precision.autocast():
            hidden = first.task.logits(self._model.model, self._model.join(batches, parts))
            losses = [
                each.strategy.task.loss(hidden[part.rows, : part.length], batch)
                for each, part, batch in zip(work, parts, batches, strict=True)
            ]
        torch.stack([loss * each.scale for loss, each in zip(losses, work, strict=True)]).sum().backward()  # type: ignore[no-untyped-call]
        return [each.detach() for each in losses]

    def _average(self, work: Sequence[Work], flags: torch.Tensor) -> None:
        trained = [each for one in work for each in one.strategy.parameters.values()]
        for each in trained:
            if each.grad is None:
                each.grad = torch.zeros_like(each)
        average_in_chunks([flags, *(each.grad for each in trained if each.grad is not None)], self._workers.size)
