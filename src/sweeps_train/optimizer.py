"""The optimizer, its state in checkpoints, and the learning rate schedule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from sweeps_train.config import Train

if TYPE_CHECKING:
    from sweeps_train.strategies import Strategy


def build_optimizer(parameters: Iterable[nn.Parameter], config: Train) -> torch.optim.Optimizer:
    """Build the configured optimizer. Matrices have weight decay; biases and norms, of one dimension, do not."""
    groups: dict[tuple[float, Any], list[nn.Parameter]] = {}
    for each in parameters:
        decay = config.weight_decay if each.ndim >= 2 else 0.0
        # A fused kernel takes only tensors that are sharded over the same mesh.
        groups.setdefault((decay, getattr(each, "device_mesh", None)), []).append(each)
    settings = [{"params": members, "weight_decay": decay} for (decay, _), members in groups.items()]
    # fused: one kernel for all parameters, on CPUs too.
    if config.optimizer == "sgd":
        is_sharded = any(mesh is not None for _, mesh in groups)  # torch's fused SGD takes no DTensor
        return torch.optim.SGD(settings, lr=config.lr, momentum=config.momentum, fused=None if is_sharded else True)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(settings, lr=config.lr, betas=(config.momentum, 0.999), fused=True)


def optimizer_state(optimizer: torch.optim.Optimizer, strategy: Strategy) -> dict[str, dict[str, torch.Tensor]]:
    """Gather the moments of every parameter on rank 0, full whatever the strategy; every worker must call it.

    Returns:
        Tensors by parameter name and moment; empty on other ranks.
    """
    shards = {
        (name, key): value
        for name, parameter in strategy.parameters.items()
        for key, value in optimizer.state[parameter].items()
        if value is not None  # sgd without momentum
    }
    state: dict[str, dict[str, torch.Tensor]] = {}
    for (name, key), value in strategy.gather_full(shards).items():
        state.setdefault(name, {})[key] = value
    return state


def load_optimizer_state(
    optimizer: torch.optim.Optimizer, state: Mapping[str, Mapping[str, torch.Tensor]], strategy: Strategy
) -> None:
    """Load this worker's shard of the moments. Learning rate, weight decay and momentum stay those of the present
    config."""
    names = {parameter: name for name, parameter in strategy.parameters.items()}
    order = [names[each] for group in optimizer.param_groups for each in group["params"]]
    shards = {
        index: {
            # The number of steps is a scalar, which is not sharded.
            key: value if key == "step" else strategy.shard_like(name, value)
            for key, value in state[name].items()
        }
        for index, name in enumerate(order)
        if name in state
    }
    optimizer.load_state_dict({"state": shards, "param_groups": optimizer.state_dict()["param_groups"]})


def learning_rate(config: Train, step: int, total_steps: int) -> float:
    """Learning rate of a step: linear warm-up from zero, then the schedule down to zero.

    A pure function of the step, so that no state needs to be saved.

    Args:
        config: Peak, schedule and warm-up.
        step: The step about to be made, from 0.
        total_steps: Steps of the whole training.

    Example:
        >>> config = Train(max_steps=4, lr=1.0, schedule="linear", warmup_fraction=0.5)
        >>> [learning_rate(config, step, 4) for step in range(4)]
        [0.5, 1.0, 1.0, 0.5]
    """
    warmup_steps = math.ceil(config.warmup_fraction * total_steps)
    if step < warmup_steps:
        return config.lr * (step + 1) / warmup_steps  # step + 1, since a step at rate 0 would be wasted
    # From 0 at the first step after the warm-up to just below 1 at the last one, so that it too has a rate above 0.
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    if config.schedule == "linear":
        return config.lr * (1 - progress)
    if config.schedule == "cosine":
        return config.lr * (1 + math.cos(math.pi * progress)) / 2
    return config.lr
