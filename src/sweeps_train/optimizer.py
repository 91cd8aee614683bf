"""The optimizer and its learning rate."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from sweeps_train.config import Train


def build_optimizer(model: nn.Module, config: Train) -> torch.optim.Optimizer:
    """The configured optimizer of torch over the trainable parameters; matrices decay, biases and norms do not."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [each for each in trainable if each.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [each for each in trainable if each.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    # fused: one kernel for all parameters, on CPUs too.
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, fused=True)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, lr=config.lr, betas=(config.momentum, 0.999), fused=True)


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Takes over the moments alone: learning rate, decay and momentum stay those of the present config."""
    optimizer.load_state_dict({**state, "param_groups": optimizer.state_dict()["param_groups"]})


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
