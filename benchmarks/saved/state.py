"""A training with a state of a given size, for measurements of saving and loading it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from sweeps_train.compat.torch import local_shard
from sweeps_train.config import TRAINING_CONFIG, TrainingConfig
from sweeps_train.models.weights import save_weights
from sweeps_train.steps.optimizer import build_optimizer
from sweeps_train.steps.precision import Precision
from sweeps_train.strategies.build_strategy import build_strategy
from sweeps_train.strategies.strategy import Strategy
from sweeps_train.tasks.task import Task
from sweeps_train.workers.distributed import Workers

WIDTH = 1024
BYTES_A_WEIGHT = 12
"""A weight and Adam's two averages, of four bytes each."""


@dataclass
class StandIn:
    """A task with a model of square layers. It is saved, and never run."""

    model: nn.Module
    frozen: Sequence[str] = ()
    stored_types: Mapping[str, torch.dtype] = field(default_factory=dict)

    def save(self, folder: Path, weights: Mapping[str, torch.Tensor] | None) -> None:
        """Write the weights."""
        save_weights(self.model, folder, weights)


@dataclass
class State:
    """One worker's part of a training."""

    config: TrainingConfig
    strategy: Strategy
    optimizer: torch.optim.Optimizer

    def tensors(self) -> dict[str, Any]:
        """Weights and averages, as they are given to torch's functions that save."""
        weights = {f"model.{name}": each.detach() for name, each in self.strategy.parameters.items()}
        for name, each in self.strategy.parameters.items():
            weights |= {f"optimizer.{name}.{key}": value for key, value in self.optimizer.state[each].items()}
        return weights

    def shards(self) -> list[torch.Tensor]:
        """Tensors of the state that this worker has, or its shards of them."""
        return [local_shard(each) for each in self.tensors().values()]


def build_state(mib: int, workers: Workers) -> State:
    """Build a model and take a step of its optimizer; sharded if there are several workers, which together have ``mib``
    of weights and optimizer."""
    document: dict[str, Any] = {
        "task": {"kind": "image_classification"},
        "model": {"kind": "conv_net"},
        "data": {"kind": "digits"},
        "train": {"max_steps": 1, "lr": 1e-3},
        "strategy": {"kind": "ddp" if workers.size == 1 else "fsdp"},
        "checkpoint": {},
    }
    config = TRAINING_CONFIG.validate_python(document)
    layers = max(1, round(mib * 2**20 / BYTES_A_WEIGHT / WIDTH**2))
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)])
    strategy = build_strategy(config.strategy, workers, Precision("fp32", workers.device))
    strategy.parallelize(cast(Task, StandIn(model)))
    optimizer = build_optimizer(strategy.parameters.values(), config.train)
    for each in strategy.parameters.values():
        each.grad = torch.zeros_like(each)
    optimizer.step()
    strategy.zero_grad()
    return State(config, strategy, optimizer)
