"""The strategy of one lane whose frozen base is sharded over the workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from sweeps_train.data.sample_order import Batch, Samples
from sweeps_train.lanes.joint_passes import JointPasses
from sweeps_train.lanes.lane_strategy import LaneStrategy
from sweeps_train.steps.precision import Precision
from sweeps_train.strategies.strategy import Capabilities, trained_parameters
from sweeps_train.tasks.task import Task
from sweeps_train.workers.distributed import Workers


class ShardedLaneStrategy(LaneStrategy):
    """Handles the adapters of a lane, which every worker holds completely. The frozen weights of its own model stay on
    the CPU: all its passes, even in evaluations, run through the joint model, which gathers the base layer by layer."""

    def __init__(self, workers: Workers, precision: Precision, capabilities: Capabilities, passes: JointPasses):
        super().__init__(workers, precision, capabilities)
        self._passes = passes

    def parallelize(self, task: Task) -> None:
        self.task, self.model = task, task.model.train()
        self.parameters = trained_parameters(task.model)
        for each in self.parameters.values():
            each.data = each.data.to(self.workers.device)
        self._passes.add(self)

    def capture_passes(self, note: Callable[[str], None]) -> None:
        """Do nothing: CUDA graphs cannot gather sharded layers."""

    def evaluate(self, samples: Samples, batch_size: int) -> torch.Tensor:
        with self._passes.evaluating():
            return super().evaluate(samples, batch_size)

    def _broadcast_buffers(self, model: nn.Module) -> None:
        """Do nothing: no pass reads the buffers of the lane's own model, and NCCL sends no tensors on the CPU."""

    def _logits(self, model: Callable[..., Any], batch: Batch) -> tuple[torch.Tensor, Batch]:
        return self._passes.logits(self, batch), batch

    def _pass(
        self, batch: Batch, factor: torch.Tensor, before_backward: Callable[[], None] | None = None
    ) -> torch.Tensor:
        """Run a pass of this lane alone, for a measurement, without drawing the training's random numbers."""
        before = self.random_numbers.state()
        try:
            return super()._pass(batch, factor, before_backward)
        finally:
            self.random_numbers.restore(before)
