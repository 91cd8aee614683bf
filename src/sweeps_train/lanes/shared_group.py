"""A group whose lanes share one frozen base: the same workers, and one forward and backward pass for all."""

from __future__ import annotations

from pathlib import Path

from sweeps_train.config import CausalLM, TrainingConfig
from sweeps_train.lanes.group import Group
from sweeps_train.lanes.joint_model import adapted_layers
from sweeps_train.lanes.joint_passes import JointPasses
from sweeps_train.lanes.lane_strategy import LaneStrategy
from sweeps_train.steps.precision import Precision
from sweeps_train.tasks.causal_lm import CausalLMTraining, shared_base
from sweeps_train.training_request import TrainingRequest


class SharedGroup(Group):
    """Workers that hold one base model for all their lanes, and adapters for each."""

    def __init__(self, request: TrainingRequest):
        super().__init__(request)
        self.config = request.config
        """Config of the first training, whose base all share."""
        assert isinstance(request.config.model, CausalLM)
        base = shared_base(request.config.model, shards=False)
        base.move_to(self.workers.device)
        self.passes = JointPasses(self.workers, base)

    def build_strategy(self, config: TrainingConfig, precision: Precision) -> LaneStrategy:
        if precision.scaler.is_enabled():
            raise ValueError(
                "train.precision=auto is fp16 on this GPU, whose loss scaling is for one training at a time; "
                "train this alone, or use train.precision=fp32"
            )
        return LaneStrategy(self.workers, precision)

    def build_task(self, config: TrainingConfig, state: Path | None) -> CausalLMTraining:
        task = CausalLMTraining(config, state, shares_base=True)
        adapted_layers(task.model)  # raises an error if some cannot be computed together with others
        return task
