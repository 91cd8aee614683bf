"""Forward and backward passes for all lanes of a group at once, and the exchange of their gradients."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from sweeps_train.data.sample_order import Batch
from sweeps_train.devices.device_operations import empty_cache, sum_type
from sweeps_train.errors import is_out_of_memory
from sweeps_train.lanes.joint_linear import Part
from sweeps_train.lanes.joint_model import JointModel, draws, join, parts_of
from sweeps_train.lanes.lane_strategy import LaneStrategy
from sweeps_train.memory.out_of_memory import OutOfMemoryHandler
from sweeps_train.steps.captured_passes import CapturedPasses, Pass
from sweeps_train.steps.micro_batches import num_rows, split_batches
from sweeps_train.strategies.all_reduce import average_gradients, average_in_chunks
from sweeps_train.strategies.strategy import on_device
from sweeps_train.workers.distributed import Workers

MOST_KINDS = 2
"""Maximum number of kinds of passes with graphs; each kind has its own gradients for all its lanes."""


@dataclass(frozen=True)
class Work:
    """One lane's input to a step."""

    strategy: LaneStrategy
    memory: OutOfMemoryHandler
    """Holds the maximum size of the lane's micro batches, and halves it after running out of memory."""
    micro_batches: Sequence[Batch]
    """Micro batches of this worker, on the CPU."""
    scale: float
    """Factor by which the losses are multiplied."""


class _OutOfMemory(Exception):
    """Raised if a pass does not fit into memory, with the indices of its lanes in the step."""

    def __init__(self, error: RuntimeError, lanes: Sequence[int], rows: int):
        super().__init__(error)
        self.error, self.lanes, self.rows = error.with_traceback(None), lanes, rows  # its frames hold tensors


class JointPasses:
    """Computes the gradients of all lanes. All workers call the same methods with the same lanes."""

    def __init__(self, workers: Workers, model: JointModel, *, is_sharded: bool = False):
        self._workers, self._model = workers, model
        self._is_sharded = is_sharded
        """Whether workers have shards of the base, so that all take part in each pass."""
        self._strategies: list[LaneStrategy] = []
        self._draws: list[bool] = []
        """Whether each lane has dropout; a graph would not draw its random numbers from the lane's own generator."""
        self._graphs: dict[Hashable, CapturedPasses] = {}
        """CUDA graphs, by the lanes of a pass and their rows."""
        self._begun: set[Hashable] = set()
        """Kinds of passes that have been computed in the current step."""
        self._most_lanes: int | None = None
        """Maximum number of lanes in a pass, after this worker ran out of memory with more."""

    def add(self, strategy: LaneStrategy) -> None:
        """Add a lane, which may compute passes alone until ``use`` includes it."""
        self.use([*self._strategies, strategy])

    def use(self, strategies: Sequence[LaneStrategy]) -> None:
        """Set the lanes that train from now on."""
        self._strategies = list(strategies)
        self._model.adapt([each.layers for each in strategies])
        self._draws = [draws(each.layers) for each in strategies]
        self._graphs.clear()

    def free_graphs(self) -> None:
        """Free the memory of CUDA graphs; they are recorded again when lanes have trained for some steps."""
        self._graphs.clear()
        empty_cache(self._workers.device)

    def backward(
        self, work: Sequence[Work], flags: torch.Tensor
    ) -> tuple[list[torch.Tensor], torch.Tensor, dict[int, Exception]]:
        """Add the gradients of the lanes' losses, averaged over all workers.

        Args:
            work: Inputs of the lanes, in the same order on all workers; one without batches has failed on this worker.
            flags: Numbers on the CPU that are exchanged together with the gradients; the first ones, one for each lane,
                are above 0 if the lane has failed.

        Returns:
            This worker's part of the summed loss of each lane, a scalar on the device; the mean of all workers' flags;
            and the errors, by index in ``work``, of lanes of which not even one sample fits into this worker's memory.
        """
        if self._workers.size > 1:
            flags = flags.to(self._workers.device, non_blocking=True)
        if self._is_sharded:  # all workers must leave out a lane that one of them cannot compute
            average_in_chunks([flags], self._workers.size)
            has_failed = flags[: len(work)].tolist()
            work = [replace(each, micro_batches=[]) if n else each for each, n in zip(work, has_failed, strict=True)]
        losses, too_large = self._passes_that_fit(work)
        for index in too_large:
            flags[index] = 1.0
        if self._workers.size > 1:
            trained = [each for one in work for each in one.strategy.parameters.values()]
            average_gradients(trained, self._workers.size, [] if self._is_sharded else [flags])
        return losses, flags, too_large

    def logits(self, strategy: LaneStrategy, batch: Batch) -> torch.Tensor:
        """Compute the logits or hidden states of a single lane that trains, for a batch on the device."""
        parts = parts_of([batch], [(self._strategies.index(strategy), strategy.random_numbers.dropout)])
        (logits,) = self._model.outputs(strategy.task.logits, batch, parts)
        return logits

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Context manager in which the base is in evaluation mode."""
        self._model.model.eval()
        try:
            yield
        finally:
            self._model.model.train()

    def _passes_that_fit(self, work: Sequence[Work]) -> tuple[list[torch.Tensor], dict[int, Exception]]:
        """Compute all passes. After running out of memory, repeat them with fewer lanes at a time, or, if a lane runs
        out of memory alone, with smaller micro batches of it. Other workers are not affected. Return the losses, and
        the errors of lanes that were left out because not even one sample fits."""
        states, too_large = [each.strategy.random_numbers.state() for each in work], dict[int, Exception]()
        while True:
            try:
                return self._passes(work), too_large
            except _OutOfMemory as full:
                if len(full.lanes) > 1:
                    self._most_lanes = (len(full.lanes) + 1) // 2
                else:
                    (index,) = full.lanes
                    try:
                        work[index].memory.halve(full.rows, full.error)
                    except torch.OutOfMemoryError as error:
                        too_large[index] = error.with_traceback(None)
                        work = [replace(each, micro_batches=[]) if n == index else each for n, each in enumerate(work)]
            # Outside of the except clause: the error's frames hold tensors that are to be freed.
            for each, state in zip(work, states, strict=True):
                each.strategy.zero_grad()
                each.strategy.random_numbers.restore(state)
            self.free_graphs()  # of passes of the size that did not fit

    def _passes(self, work: Sequence[Work]) -> list[torch.Tensor]:
        device = self._workers.device
        work = [
            replace(each, micro_batches=split_batches(each.micro_batches, each.memory.micro_batch_size))
            for each in work
        ]
        losses = [torch.zeros((), dtype=sum_type(device), device=device) for _ in work]
        most = self._most_lanes or len(work)
        self._begun.clear()
        for number in range(max((len(each.micro_batches) for each in work), default=0)):
            present = [index for index, each in enumerate(work) if number < len(each.micro_batches)]
            for start in range(0, len(present), most):
                chosen = present[start : start + most]
                try:
                    of_lanes = self._pass([work[each] for each in chosen], number)
                except RuntimeError as error:
                    if self._is_sharded or not is_out_of_memory(error):  # all workers take part in each pass
                        raise
                    rows = max(num_rows(batch) for each in chosen for batch in work[each].micro_batches)
                    raise _OutOfMemory(error, chosen, rows) from None
                for index, loss in zip(chosen, of_lanes, strict=True):
                    losses[index] += loss
        return losses

    def _pass(self, work: Sequence[Work], number: int) -> torch.Tensor:
        """Add the gradients of one micro batch of each lane, and return their losses."""
        device, strategies = self._workers.device, [each.strategy for each in work]
        batches = [each.micro_batches[number] for each in work]
        lanes = [(self._strategies.index(each), each.random_numbers.dropout) for each in strategies]
        parts = parts_of(batches, lanes)
        scales = torch.tensor([each.scale for each in work], dtype=sum_type(device))
        factors = scales.to(device, non_blocking=True)  # a copy that waits would wait for all earlier kernels
        compute = functools.partial(self._compute, strategies, parts)
        joint = on_device(join(batches), device)
        captured = self._captured(strategies, parts, compute, joint)
        return compute(joint, factors) if captured is None else captured(joint, factors)

    def _compute(
        self, strategies: Sequence[LaneStrategy], parts: Sequence[Part], batch: Batch, factors: torch.Tensor
    ) -> torch.Tensor:
        first = strategies[0]
        with first.precision.autocast():
            outputs = self._model.outputs(first.task.logits, batch, parts)
            losses = torch.stack(
                [
                    each.task.loss(output, {"targets": batch["targets"][at.rows, : at.length]})
                    for each, output, at in zip(strategies, outputs, parts, strict=True)
                ]
            )
        torch.autograd.backward((losses * factors.to(losses.dtype)).sum())
        return losses.detach()

    def _captured(
        self, strategies: Sequence[LaneStrategy], parts: Sequence[Part], compute: Pass, batch: Batch
    ) -> CapturedPasses | None:
        """Return the CUDA graphs for the current lanes and their numbers of rows; None if passes are not replayed."""
        if any(
            each.capture_note is None or self._draws[part.lane] for each, part in zip(strategies, parts, strict=True)
        ):
            return None
        key = tuple((part.lane, part.rows.start, part.rows.stop, part.length) for part in parts)
        if key not in self._graphs:
            if len(self._graphs) >= MOST_KINDS:
                return None
            trained = [each for strategy in strategies for each in strategy.parameters.values()]
            self._graphs[key] = CapturedPasses(compute, trained, functools.partial(_tell_all, strategies))
        if key not in self._begun:
            self._begun.add(key)
            self._graphs[key].begin_step([batch])
        return self._graphs[key]


def _tell_all(strategies: Sequence[LaneStrategy], text: str) -> None:
    for each in strategies:
        if each.capture_note is not None:
            each.capture_note(text)
