"""The optimizer and its learning rate."""

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
    """The configured optimizer of torch; matrices decay, biases and norms do not."""
    groups: dict[tuple[float, Any], list[nn.Parameter]] = {}
    for each in parameters:
        decay = config.weight_decay if each.ndim >= 2 else 0.0
        # One kernel takes only what is cut over the same workers.
        groups.setdefault((decay, getattr(each, "device_mesh", None)), []).append(each)
    settings = [{"params": members, "weight_decay": decay} for (decay, _), members in groups.items()]
    # fused: one kernel for all parameters, on CPUs too.
    if config.optimizer == "sgd":
        is_cut = any(mesh is not None for _, mesh in groups)  # which torch's kernel of sgd cannot take
        return torch.optim.SGD(settings, lr=config.lr, momentum=config.momentum, fused=None if is_cut else True)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(settings, lr=config.lr, betas=(config.momentum, 0.999), fused=True)


def optimizer_state(optimizer: torch.optim.Optimizer, strategy: Strategy) -> dict[str, dict[str, torch.Tensor]]:
    """The moments of every parameter by its name, whole whatever the strategy, on rank 0; every worker must call it."""
    parts = {
        (name, key): value
        for name, parameter in strategy.parameters.items()
        for key, value in optimizer.state[parameter].items()
        if value is not None  # sgd without momentum
    }
    state: dict[str, dict[str, torch.Tensor]] = {}
    for (name, key), value in strategy.whole(parts).items():
        state.setdefault(name, {})[key] = value
    return state


def load_optimizer_state(
    optimizer: torch.optim.Optimizer, state: Mapping[str, Mapping[str, torch.Tensor]], strategy: Strategy
) -> None:
    """Takes over this worker's part of the moments alone: learning rate, decay and momentum stay those of the present
    config."""
    names = {parameter: name for name, parameter in strategy.parameters.items()}
    order = [names[each] for group in optimizer.param_groups for each in group["params"]]
    parts = {
        place: {
            # Steps are a number, which is no part of the parameter's shape.
            key: value if key == "step" else strategy.part(name, value)
            for key, value in state[name].items()
        }
        for place, name in enumerate(order)
        if name in state
    }
    optimizer.load_state_dict({"state": parts, "param_groups": optimizer.state_dict()["param_groups"]})


def learning_rate(config: Train, step: int, total_steps: int) -> float:
    """The learning rate of a step: a line from zero over the warm-up, then the schedule down to zero.

    A pure function of the step, so that there is no state to save.

    Args:
        config: Peak, schedule and warm-up.
        step: The step about to be made, from 0.
        total_steps: Steps of the whole training.
    """
    warmup_steps = math.ceil(config.warmup_fraction * total_steps)
    if step < warmup_steps:
        return config.lr * (step + 1) / warmup_steps  # from step + 1, since a step at rate 0 would be wasted
    # From 0 at the first step after the warm-up to just below 1 at the last one, for the same reason.
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    if config.schedule == "linear":
        return config.lr * (1 - progress)
    if config.schedule == "cosine":
        return config.lr * (1 + math.cos(math.pi * progress)) / 2
    return config.lr
