"""The typed schema of one training, which does not import torch. ``TrainingConfig`` is the root.

The driver checks a config with these classes in milliseconds, before any worker starts; a worker receives the same
object. Unknown keys, wrong types and values out of range are errors, of which pydantic reports all at once; for a
combination that cannot work, the message names the keys and the fix.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass

from sweeps_train.config.command import CommandTask
from sweeps_train.config.data import CustomData, Data, DigitsData, TextData
from sweeps_train.config.estimator import EstimatorConfig, EstimatorTask, check_folds
from sweeps_train.config.fields import STRICT, NonNegativeFloat, PositiveFloat, PositiveInt, Seed
from sweeps_train.config.gradient_accumulation import check_batch_split
from sweeps_train.config.model import CausalLM, ConvNet, CustomModel, Lora, Mlp, Model, VisionTransformer
from sweeps_train.config.strategy import Strategy
from sweeps_train.config.table import TableData
from sweeps_train.config.task import (
    CausalLMTask,
    ClassificationTask,
    FunctionTask,
    ImageClassificationTask,
    RegressionTask,
    TableTask,
    Task,
)
from sweeps_train.config.train import BITSANDBYTES_OPTIMIZERS, Checkpoint, CustomOptimizer, Train

__all__ = [
    "BITSANDBYTES_OPTIMIZERS",
    "STRICT",
    "TRAINING_CONFIG",
    "CausalLM",
    "CausalLMTask",
    "Checkpoint",
    "ClassificationTask",
    "CommandConfig",
    "CommandTask",
    "ConvNet",
    "CustomData",
    "CustomModel",
    "CustomOptimizer",
    "Data",
    "DigitsData",
    "EstimatorConfig",
    "EstimatorTask",
    "FunctionConfig",
    "FunctionTask",
    "ImageClassificationTask",
    "Lora",
    "Mlp",
    "Model",
    "NonNegativeFloat",
    "PositiveFloat",
    "PositiveInt",
    "RegressionTask",
    "Strategy",
    "TableData",
    "TableTask",
    "Task",
    "TextData",
    "Train",
    "TrainingConfig",
    "VisionTransformer",
    "check_batch_split",
    "check_fit",
    "check_folds",
    "check_training",
]


@dataclass(config=STRICT, kw_only=True)
class TrainingConfig:
    """Config of a training of a built-in task."""

    task: Task
    """Goal of the training, and its metrics."""
    model: Model
    """Model that is trained."""
    data: Data
    """Source of the samples."""
    train: Train
    """Training loop."""
    strategy: Strategy
    """Distribution of the training over its workers."""
    checkpoint: Checkpoint
    """Frequency and retention of checkpoints."""
    seed: Seed = 0
    """Seeds weights, data order, dropout and the search; a 32-bit number, as numpy requires."""

    def __post_init__(self) -> None:
        check_fit(self.task, self.model, self.data)
        check_training(self.model, self.train, self.strategy)


@dataclass(config=STRICT, kw_only=True)
class FunctionConfig:
    """Config of a training by a user's own function."""

    task: FunctionTask
    """The function and its arguments."""
    checkpoint: Checkpoint
    """Retention of checkpoints."""
    seed: Seed = 0
    """Seeds torch, Python and numpy before the function is called; a 32-bit number."""
    needed: list[str] = Field(default_factory=list)
    """Metrics that the search reads and that the function must report."""


@dataclass(config=STRICT, kw_only=True)
class CommandConfig:
    """Config of a training by a program."""

    task: CommandTask
    checkpoint: Checkpoint
    seed: Seed = 0
    """Value of the placeholder ``{seed}``."""
    values: dict[str, Any] = Field(default_factory=dict)
    """Values of the placeholders that name a value of the trial's config."""
    objectives: list[str] = Field(default_factory=list)
    """Metrics that a report must have."""
    limited: list[str] = Field(default_factory=list)
    """Metrics with limits, which a report must have as well."""
    saves_at_reports: bool = False
    """Whether every report waits for a checkpoint, from which the trial can be paused or copied."""


def check_fit(task: Task, model: Model, data: Data) -> None:
    """Raise ``ValueError`` if the task cannot train this model or read this data."""
    supported = {
        "causal_lm": ({"causal_lm"}, {"text"}),
        "image_classification": ({"conv_net", "vision_transformer", "custom"}, {"digits", "custom"}),
        "classification": ({"mlp", "custom"}, {"table"}),
        "regression": ({"mlp", "custom"}, {"table"}),
    }
    models, kinds_of_data = supported[task.kind]
    if model.kind not in models:
        raise ValueError(f"model.kind={model.kind} does not fit task.kind={task.kind}, which trains {sorted(models)}")
    if data.kind not in kinds_of_data:
        raise ValueError(
            f"data.kind={data.kind} does not fit task.kind={task.kind}, which reads {sorted(kinds_of_data)}"
        )
    isolates = isinstance(data, TextData) and data.isolate_documents
    if isolates and isinstance(model, CausalLM) and (model.attention or "").startswith("flash"):
        raise ValueError(
            f"data.isolate_documents=true: model.attention={model.attention} takes no mask for whole batches; "
            "use model.attention=sdpa or flex_attention"
        )


def check_training(model: Model, train: Train, strategy: Strategy) -> None:
    """Raise ``ValueError`` if this model cannot be trained in this way with the strategy."""
    _check_exchange(train, strategy)
    if train.compile and strategy.kind != "ddp":
        raise ValueError(
            f"train.compile=true is for strategy=ddp; with strategy.kind={strategy.kind} set train.compile to false"
        )
    if train.corruption_check_every is not None and strategy.kind != "ddp":
        raise ValueError(
            f"train.corruption_check_every={train.corruption_check_every} compares workers that hold the whole model; "
            f"with strategy.kind={strategy.kind} set it to null, or use strategy=ddp"
        )
    _check_fine_tuning(model, train, strategy)
    _check_precision(model, train, strategy)


def _check_exchange(train: Train, strategy: Strategy) -> None:
    """Raise ``ValueError`` if a limit on communication is set, but a larger global batch would not reduce it with this
    strategy."""
    if train.max_communication_share is None:
        return
    if strategy.kind != "ddp":
        raise ValueError(
            f"train.max_communication_share={train.max_communication_share} is for strategy=ddp, which only sends "
            f"gradients, once a step; with strategy.kind={strategy.kind} set it and train.max_global_batch_size to null"
        )
    if strategy.compression == "powersgd":
        raise ValueError(
            f"train.max_communication_share={train.max_communication_share}: strategy.compression=powersgd sends "
            "the same amount whatever the batch size; set strategy.compression to none, fp16 or bf16, or "
            "train.max_communication_share and train.max_global_batch_size to null"
        )


def _check_fine_tuning(model: Model, train: Train, strategy: Strategy) -> None:
    """Raise ``ValueError`` if the strategy cannot divide this base model, its adapters, or the state of its
    optimizer."""
    kind = strategy.kind
    if kind != "ddp" and train.optimizer in BITSANDBYTES_OPTIMIZERS:
        raise ValueError(
            f"train.optimizer={train.optimizer}: the state of bitsandbytes' optimizers cannot be divided by "
            f"strategy.kind={kind}; use strategy=ddp, or train.optimizer=adamw"
        )
    if not isinstance(model, CausalLM):
        return
    if kind != "ddp" and model.quantization != "none":
        raise ValueError(
            f"model.quantization={model.quantization}: a quantized base cannot be divided by strategy.kind={kind}; use "
            "strategy=ddp, or model.quantization=none"
        )
    if model.lora is None:
        return
    splits_layers = kind in ("tensor_parallel", "fsdp_tensor_parallel")
    if splits_layers and model.lora.use_dora:
        raise ValueError(
            f"model.lora.use_dora=true: needs the norms of whole layers, which strategy.kind={kind} divides; use "
            "strategy=ddp or fsdp, or model.lora.use_dora=false"
        )
    if kind not in ("ddp", "context_parallel") and model.lora.modules_to_save:
        raise ValueError(
            f"model.lora.modules_to_save={model.lora.modules_to_save}: strategy.kind={kind} does not divide copies of "
            "modules; use strategy=ddp, or model.lora.modules_to_save=[]"
        )


def _check_precision(model: Model, train: Train, strategy: Strategy) -> None:
    """Raise ``ValueError`` if 8-bit multiplications are not supported for this training or would not make it faster."""
    if train.precision != "fp8":
        return
    if strategy.kind not in ("ddp", "fsdp"):
        raise ValueError(
            f"train.precision=fp8: layers that strategy.kind={strategy.kind} divides are not converted; use "
            "strategy=ddp or fsdp, or train.precision=bf16"
        )
    if isinstance(model, CausalLM) and model.lora is not None:
        raise ValueError(
            "train.precision=fp8: torchao computes gradients of all weights that it multiplies, even frozen ones, "
            "which is slower; train all weights (model.lora=null), or use train.precision=bf16"
        )


TRAINING_CONFIG: TypeAdapter[TrainingConfig] = TypeAdapter(TrainingConfig)
"""Validates a ``TrainingConfig`` from plain dicts, and dumps it (``dump_python(..., by_alias=True)``)."""
