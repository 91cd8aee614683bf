"""Rules for trainings that share one group of workers and one frozen base model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sweeps_train.config import CausalLM, Lora, TrainingConfig
from sweeps_train.config.strategy import DDP, FSDP

_ALLOWED: dict[str, Callable[[TrainingConfig], bool]] = {
    "task.kind": lambda config: config.task.kind == "causal_lm",
    "model.lora": lambda config: _model(config).lora is not None,
    "model.lora.use_dora": lambda config: not _adapters(config).use_dora,
    "model.lora.modules_to_save": lambda config: not _adapters(config).modules_to_save,
    "model.quantization": lambda config: _model(config).quantization == "none",
    # The code of such a model may let the rows of a batch see each other.
    "model.trust_remote_code": lambda config: not _model(config).trust_remote_code,
    # The second forward pass would draw other random numbers, as with activation checkpointing below.
    "model.gradient_checkpointing": lambda config: (
        not (_model(config).gradient_checkpointing and _adapters(config).dropout)
    ),
    "strategy.kind": lambda config: isinstance(config.strategy, DDP | FSDP),
    "strategy.compression": lambda config: (
        not isinstance(config.strategy, DDP) or config.strategy.compression == "none"
    ),
    "strategy.activation_checkpointing": lambda config: (
        not (_sharding(config).activation_checkpointing and _adapters(config).dropout)
    ),
    "strategy.cpu_offload": lambda config: not _sharding(config).cpu_offload,
    "train.precision": lambda config: config.train.precision not in ("fp16", "fp8"),
    "train.compile": lambda config: not config.train.compile,
    "train.corruption_check_every": lambda config: config.train.corruption_check_every is None,
    "train.max_communication_share": lambda config: config.train.max_communication_share is None,
}
"""Conditions that each training must meet, by config key, in order of checking."""
_SAME: dict[str, Callable[[TrainingConfig], Any]] = {
    "task": lambda config: config.task,
    "model": lambda config: replace(_model(config), lora=Lora()),
    "data": lambda config: config.data,
    "strategy": lambda config: config.strategy,
    "train.precision": lambda config: config.train.precision,
    "train.tf32": lambda config: config.train.tf32,
    "train.deterministic": lambda config: config.train.deterministic,
}
"""Values that must be the same in all trainings, by key."""


def forbids_sharing(configs: Sequence[TrainingConfig]) -> str | None:
    """Return a config key that keeps trainings from sharing workers, since its value in one of them forbids it or its
    values differ; None if they may share."""
    for config in configs:
        for key, allows in _ALLOWED.items():
            if not allows(config):
                return key
    for key, value in _SAME.items():
        if any(value(each) != value(configs[0]) for each in configs[1:]):
            return key
    return None


def shared_values(config: TrainingConfig) -> tuple[Any, ...]:
    """Return the values of a training's config that must be the same in all trainings on the same workers."""
    return tuple(value(config) for value in _SAME.values())


def _model(config: TrainingConfig) -> CausalLM:
    assert isinstance(config.model, CausalLM)  # checked by the condition on the task
    return config.model


def _sharding(config: TrainingConfig) -> FSDP:
    return config.strategy if isinstance(config.strategy, FSDP) else FSDP(kind="fsdp")


def _adapters(config: TrainingConfig) -> Lora:
    lora = _model(config).lora
    assert lora is not None  # checked by an earlier condition
    return lora
