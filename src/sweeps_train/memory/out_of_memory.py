"""Handles running out of memory: frees CUDA graphs or halves the micro batch, and repeats the step or evaluation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch

from sweeps_train.config import TrainingConfig
from sweeps_train.data.sample_order import Batch, Samples
from sweeps_train.devices.device_operations import empty_cache
from sweeps_train.errors import is_out_of_memory
from sweeps_train.memory.micro_batch_cache import halved
from sweeps_train.memory.micro_batch_size import ADVICE
from sweeps_train.steps.micro_batches import num_rows, split_batches
from sweeps_train.strategies.strategy import Strategy

_log = logging.getLogger(__name__)


class OutOfMemoryHandler:
    """Trains and evaluates in micro batches; halves them when this worker's device runs out of memory.

    Other workers need not know: gradients are those of the global batch, however it is divided.
    """

    def __init__(self, config: TrainingConfig, strategy: Strategy, micro_batch_size: int, note: Callable[[str], None]):
        self.micro_batch_size = micro_batch_size
        """Samples per forward pass; fewer after running out of memory."""
        self._config, self._strategy, self._note = config, strategy, note
        self._halvings = 0
        self._steps = 0
        self._largest_step = 0
        """Tokens or samples in the largest global batch so far."""

    def backward(self, batches: Sequence[Batch], size: int, scale: float | torch.Tensor) -> torch.Tensor:
        """Add the gradients of one step from this worker's micro batches, which are on the CPU. ``size`` counts the
        tokens or samples of the global batch. Return this worker's part of the summed loss, as ``Strategy.backward``
        does.

        Raises:
            MicroBatchHalved: Workers wait for each other, so that this one cannot repeat the step alone.
            torch.OutOfMemoryError: Not even one sample fits.
        """
        strategy = self._strategy
        # A step may need more memory than any before if it is larger, or the first one with the optimizer's moments.
        defer_grad_sync = size > self._largest_step or self._steps < 2
        self._largest_step, self._steps = max(self._largest_step, size), self._steps + 1
        micro_batches = split_batches(batches, self.micro_batch_size)
        while True:
            try:
                return strategy.backward(micro_batches, scale, defer_grad_sync=defer_grad_sync)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                if not strategy.free_graphs():  # else the same batches may fit now
                    self.halve(max(map(num_rows, micro_batches)), error)
            # Outside of the except clause: the error's frames hold tensors that are to be freed.
            strategy.zero_grad()
            empty_cache(strategy.workers.device)
            micro_batches = split_batches(micro_batches, self.micro_batch_size)

    def evaluate(self, samples: Samples) -> torch.Tensor:
        """Compute the task's scores over this worker's share of the held-out samples, as ``Strategy.evaluate`` does.

        Raises:
            MicroBatchHalved: Workers wait for each other, so that this one cannot repeat a batch alone.
        """
        size = self.micro_batch_size
        try:
            return self._strategy.evaluate(samples, size)
        except RuntimeError as error:
            # A strategy that can repeat a batch alone has done so, down to one sample.
            if size == 1 or self._strategy.capabilities.can_retry_oom or not is_out_of_memory(error):
                raise
            raise halved(self._config, self._strategy, size) from error

    def halve(self, size: int, error: RuntimeError) -> None:
        """Halve the size of later micro batches after the device's error for one of ``size`` samples, and tell the
        user.

        Raises:
            MicroBatchHalved: See ``backward``.
            torch.OutOfMemoryError: Not even one sample fits.
        """
        strategy, smaller = self._strategy, halved(self._config, self._strategy, size)
        if size == 1:
            raise torch.OutOfMemoryError(f"train.micro_batch_size=1 does not fit ({error}); {ADVICE}") from error
        if not strategy.capabilities.can_retry_oom or strategy.grad_sync_started:
            raise smaller from error
        self.micro_batch_size = smaller.half
        self._halvings += 1
        text = f"out of memory: micro batches have {smaller.half} samples from now on, instead of {size}"
        _log.warning("worker %d: %s", strategy.workers.rank, text)
        self._note(text)

    def take_halvings(self) -> int:
        """Return how often this worker has halved its micro batches since the last call."""
        halvings, self._halvings = self._halvings, 0
        return halvings

    def equalize(self) -> None:
        """Set all workers to the smallest micro batch of any, since all wait for the slowest; every worker calls it."""
        workers = self._strategy.workers
        self.micro_batch_size = workers.broadcast(min(workers.gather(self.micro_batch_size), default=0))
