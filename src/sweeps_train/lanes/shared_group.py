"""A group whose lanes share one frozen base: the same workers, and one forward and backward pass for all."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from sweeps_train.config import CausalLM, TextData, TrainingConfig
from sweeps_train.config.strategy import FSDP
from sweeps_train.errors import CannotShare
from sweeps_train.lanes.group import Group
from sweeps_train.lanes.joint_model import JointModel, Observed, adapted_layers
from sweeps_train.lanes.joint_passes import JointPasses
from sweeps_train.lanes.lane_strategy import LaneStrategy
from sweeps_train.lanes.sharded_lane_strategy import ShardedLaneStrategy
from sweeps_train.steps.precision import Precision
from sweeps_train.strategies.layers import checkpoint_activations
from sweeps_train.strategies.strategy import Capabilities
from sweeps_train.tasks import Task
from sweeps_train.tasks.causal_lm import CausalLMTraining, shared_base
from sweeps_train.training_request import TrainingRequest


class PreparationFailed(Exception):
    """Raised on all workers if some of them could not build the model or data of a training."""

    def __init__(self, error: Exception):
        super().__init__(error)
        self.error = error
        """This worker's error, or an error that names the worker that has failed."""


class SharedGroup(Group):
    """Workers that hold one base model for all their lanes, whole or in shards, and separate adapters for each lane."""

    def __init__(self, request: TrainingRequest):
        super().__init__(request)
        self.config = request.config
        """Config of the first training, whose base all lanes share."""
        assert isinstance(request.config.model, CausalLM)
        strategy = request.config.strategy
        self._sharding = strategy if isinstance(strategy, FSDP) and self.workers.size > 1 else None
        self._base = shared_base(request.config.model, shards=self._sharding is not None)
        if self._sharding is None:
            self._base.move_to(self.workers.device)
        self._model = JointModel(self._base)
        self._recomputes = isinstance(strategy, FSDP) and strategy.activation_checkpointing
        if self._recomputes:
            checkpoint_activations(self._model.model)
        if self._sharding is not None:
            self._shard(self._sharding)
        self.passes = JointPasses(self.workers, self._model, is_sharded=self._sharding is not None)

    def _shard(self, sharding: FSDP) -> None:
        """Keep only this worker's shard of the base."""
        from sweeps_train.strategies.fsdp import sharding_mesh, wrap_fsdp  # import DTensor

        sharding.replicas(self.workers.size)
        precision = Precision(self.config.train.precision, self.workers.device)
        wrap_fsdp(self._model.model, sharding_mesh(self.workers, sharding.shard_size), sharding, precision, ())

    def build_strategy(self, config: TrainingConfig, precision: Precision) -> LaneStrategy:
        is_sharded = self._sharding is not None
        capabilities = Capabilities(
            random_stream=self.workers.rank,
            activation_checkpointing=self._recomputes,
            can_retry_oom=not is_sharded,  # else all workers take part in each pass
        )
        if is_sharded:
            return ShardedLaneStrategy(self.workers, precision, capabilities, self.passes)
        return LaneStrategy(self.workers, precision, capabilities)

    def build_task(self, config: TrainingConfig, state: Path | None) -> CausalLMTraining:
        if Precision(config.train.precision, self.workers.device).scaler.is_enabled():
            raise CannotShare(
                "train.precision=auto is fp16 on this GPU, and its loss scaling works for only one training at a time",
                "use scaling.trials_per_group=1, or train.precision=fp32",
            )
        if (key := self._forbids_sharing) is not None:
            raise CannotShare(f"{key}, so that a trial's values would depend on the trials that share its workers")
        task = CausalLMTraining(config, state, self._base)
        flattened = self._observed.flattened & adapted_layers(task.model).keys()
        if flattened:
            raise CannotShare(
                f"model.lora.target_modules: the inputs of {min(flattened)} do not have the shape (samples, tokens, "
                "width), so the samples of several trials cannot be told apart",
                "leave it out, or use scaling.trials_per_group=1",
            )
        if self._sharding is not None and task.head_of_loss is not None:
            task.head_of_loss = self._model.head
        return task

    @functools.cached_property
    def _observed(self) -> Observed:
        return self._model.observe(self.workers.device)

    @functools.cached_property
    def _forbids_sharing(self) -> str | None:
        """Return why rows of different lanes would change each other in the base model; None if they do not."""
        model, data, rope = self.config.model, self.config.data, _long_rope(self._model.model)
        assert isinstance(model, CausalLM) and isinstance(data, TextData)
        if self._observed.draws:
            return f"model.path={model.path} draws random numbers in training, as for dropout of its own"
        if rope is not None and data.sequence_length > rope and not (data.packing and not data.isolate_documents):
            return (
                f"data.sequence_length={data.sequence_length}: model.path={model.path} encodes positions otherwise if "
                f"any sequence of a batch has more than {rope} tokens"
            )
        return None

    def prepare(self, request: TrainingRequest, state: Path | None) -> Task:
        """Build model and data of a lane on all workers.

        Raises:
            PreparationFailed: The preparation failed on some worker, so that all workers leave the training out.
        """
        task: Task | None = None
        error: Exception | None = None
        try:
            task = self.build_task(request.config, state)
        except Exception as raised:  # noqa: BLE001 - such as of a damaged file on this node
            error = raised
        if not isinstance(error, CannotShare):  # else it may be prepared alone
            request.on_prepared()
        self.workers.meet()
        (failed,) = self.workers.sum([float(error is not None)])
        if not failed:
            assert task is not None
            return task
        own = None if error is None else f"{type(error).__name__}: {error}"
        told = [f"worker {rank}: {text}" for rank, text in enumerate(self.workers.gather(own)) if text is not None]
        elsewhere = OSError(f"model or data could not be prepared by {next(iter(told), 'another worker')}")
        raise PreparationFailed(error or elsewhere) from error


def _long_rope(model: Any) -> int | None:
    """Return the length in tokens above which a model with ``longrope`` uses other rotary embeddings for all sequences
    of a batch; None for other models."""
    rope = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
    return rope["original_max_position_embeddings"] if rope.get("rope_type") == "longrope" else None
