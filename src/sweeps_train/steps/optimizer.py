"""The optimizer, its state in checkpoints, and the learning rate schedule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from sweeps_train.compat.late_compiler import leave_out_of
from sweeps_train.compat.torch import is_dtensor
from sweeps_train.config import BITSANDBYTES_OPTIMIZERS, CustomOptimizer, Train
from sweeps_train.errors import is_out_of_memory
from sweeps_train.files.tensor_file import can_be_stored
from sweeps_train.targets import call_target

if TYPE_CHECKING:
    from sweeps_train.strategies.strategy import Strategy


# Types of an optimizer's state beside tensors, which `torch.load` reads without running code.
_PLAIN = (bool, int, float, str)
_OF_GROUP = "group:"
"""Prefix, in a parameter's state, of the values that the optimizer has changed in the parameter's group."""
_first_groups: WeakKeyDictionary[torch.optim.Optimizer, list[dict[str, Any]]] = WeakKeyDictionary()
"""Initial parameter groups of users' own optimizers. Some optimizers, such as Prodigy, later store in them what they
learn."""


def build_optimizer(parameters: Iterable[nn.Parameter], config: Train) -> torch.optim.Optimizer:
    """Build the configured optimizer. Matrices have weight decay; biases and norms, of one dimension, do not.

    Raises:
        ValueError: A user's own optimizer cannot be built.
    """
    groups: dict[tuple[float, Any], list[nn.Parameter]] = {}
    for each in parameters:
        decay = config.weight_decay if each.ndim >= 2 else 0.0
        # A fused kernel takes only tensors that are sharded over the same mesh.
        groups.setdefault((decay, getattr(each, "device_mesh", None)), []).append(each)
    settings = [{"params": members, "weight_decay": decay} for (decay, _), members in groups.items()]
    if isinstance(config.optimizer, CustomOptimizer):
        return _custom(config.optimizer, settings, config.lr)
    betas = (config.momentum, 0.999)
    if config.optimizer in BITSANDBYTES_OPTIMIZERS:
        import bitsandbytes

        optimizers: Any = bitsandbytes.optim
        kinds = {
            "adamw_8bit": optimizers.AdamW8bit,
            "paged_adamw_8bit": optimizers.PagedAdamW8bit,
            "paged_adamw_32bit": optimizers.PagedAdamW32bit,
        }
        made: torch.optim.Optimizer = kinds[config.optimizer](settings, lr=config.lr, betas=betas)
        return made
    # fused: one kernel for all parameters, on CPUs too.
    if config.optimizer == "sgd":
        is_sharded = any(mesh is not None for _, mesh in groups)  # torch's fused SGD takes no DTensor
        leave_out_of(torch.optim.SGD)
        sgd = torch.optim.SGD(settings, lr=config.lr, momentum=config.momentum, fused=None if is_sharded else True)
        if config.momentum and not is_sharded:
            sgd.register_step_pre_hook(_complete_momentum)
        return sgd
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    leave_out_of(kind)
    return kind(settings, lr=config.lr, betas=betas, fused=True)


def _complete_momentum(sgd: torch.optim.Optimizer, *_: Any) -> None:
    """Set missing momenta to zero: torch's fused SGD fails in a step in which some parameters, but not all, have their
    first gradient."""
    if len(sgd.state) == sum(len(group["params"]) for group in sgd.param_groups):
        return  # as after the first step of most models
    for group in sgd.param_groups:
        for each in group["params"]:
            if each.grad is not None and sgd.state[each].get("momentum_buffer") is None:
                sgd.state[each]["momentum_buffer"] = torch.zeros_like(each)


def _custom(config: CustomOptimizer, settings: list[dict[str, Any]], lr: float) -> torch.optim.Optimizer:
    made = call_target("train.optimizer", config.target, {"params": settings, "lr": lr, **config.arguments})
    if not isinstance(made, torch.optim.Optimizer):
        raise ValueError(  # noqa: TRY004 - a mistake in the config
            f"train.optimizer._target_={config.target} returned {type(made).__name__}; it must be a torch Optimizer"
        )
    _first_groups[made] = [dict(group) for group in made.param_groups]
    return made


@contextmanager
def named_in_errors(config: Train, strategy: str) -> Iterator[None]:
    """Name the config key of a user's own optimizer in errors of its step, and the kind of the strategy, which may
    divide the tensors that the optimizer gets.

    Raises:
        ValueError: The step failed, and not for lack of memory.
    """
    try:
        yield
    except RuntimeError as error:
        if not isinstance(config.optimizer, CustomOptimizer) or is_out_of_memory(error):
            raise
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(
            f"train.optimizer._target_={config.optimizer.target}: its step fails with strategy.kind={strategy} "
            f"({first[:200]}); use strategy=ddp, or another optimizer"
        ) from error


OptimizerState = dict[str, dict[str, Any]]
"""Tensors and numbers of an optimizer by parameter name and key, such as the name of a moment."""


def own_state(
    optimizer: torch.optim.Optimizer, strategy: Strategy
) -> tuple[dict[tuple[str, str], torch.Tensor], OptimizerState]:
    """Return this worker's optimizer state: tensors, or its shards of them, by parameter name and key; and the other
    values.

    Raises:
        ValueError: The state of a user's own optimizer cannot be saved.
    """
    tensors: dict[tuple[str, str], torch.Tensor] = {}
    plain: OptimizerState = {}
    changed = _changed_in_groups(optimizer)
    for name, parameter in strategy.parameters.items():
        if parameter in changed:
            plain[name] = changed[parameter]
        for key, value in optimizer.state[parameter].items():
            _check_can_be_saved(optimizer, key, value, parameter)
            if isinstance(value, torch.Tensor) and can_be_stored(value):
                tensors[name, key] = value
            elif value is not None:  # as sgd's without momentum
                plain.setdefault(name, {})[key] = value
    return tensors, plain


def _changed_in_groups(optimizer: torch.optim.Optimizer) -> dict[nn.Parameter, dict[str, Any]]:
    """Return the values that a user's own optimizer has changed in its parameter groups, by parameter."""
    changed: dict[nn.Parameter, dict[str, Any]] = {}
    for first, group in zip(_first_groups.get(optimizer, ()), optimizer.param_groups, strict=False):
        values = {
            f"{_OF_GROUP}{key}": value
            for key, value in group.items()
            if key != "lr" and type(value) in _PLAIN and (key not in first or first[key] != value)
        }
        if values:
            changed |= {each: dict(values) for each in group["params"]}
    return changed


def _check_can_be_saved(optimizer: torch.optim.Optimizer, key: str, value: Any, parameter: nn.Parameter) -> None:
    if isinstance(value, torch.Tensor):
        is_sharded = hasattr(value, "device_mesh") and value.ndim > 0
        fault = f"has shape {tuple(value.shape)}" if is_sharded and value.shape != parameter.shape else ""
    else:
        fault = "" if value is None or isinstance(value, _PLAIN) else f"is a {type(value).__name__}"
    if fault:
        raise ValueError(
            f"train.optimizer: {key} in the state of {type(optimizer).__name__} {fault} for a parameter of shape "
            f"{tuple(parameter.shape)}, which cannot be saved; use strategy=ddp, or another optimizer"
        )


def load_optimizer_state(
    optimizer: torch.optim.Optimizer, state: Mapping[str, Mapping[str, Any]], strategy: Strategy
) -> None:
    """Load this worker's shard of the state. Learning rate, weight decay and momentum keep the values of the current
    config, unlike values that the optimizer itself has changed in its groups."""
    names = {parameter: name for name, parameter in strategy.parameters.items()}
    order = [names[each] for group in optimizer.param_groups for each in group["params"]]
    shards = {
        index: {
            key: _own_part(strategy, name, value) for key, value in state[name].items() if not key.startswith(_OF_GROUP)
        }
        for index, name in enumerate(order)
        if name in state
    }
    groups = optimizer.state_dict()["param_groups"]
    for group in groups:
        of_first = state.get(order[group["params"][0]], {}) if group["params"] else {}
        group |= {key.removeprefix(_OF_GROUP): each for key, each in of_first.items() if key.startswith(_OF_GROUP)}
    optimizer.load_state_dict({"state": shards, "param_groups": groups})
    for index, name in enumerate(order):
        loaded = optimizer.state[strategy.parameters[name]] if index in shards else {}
        for key, value in shards.get(index, {}).items():
            # torch has converted all but `step` to the parameter's type, also 16-bit moments and whole numbers.
            if key != "step" and isinstance(value, torch.Tensor) and loaded[key].dtype != value.dtype:
                loaded[key] = value.to(loaded[key].device)


def _own_part(strategy: Strategy, name: str, value: Any) -> Any:
    """Return this worker's part of a value in a parameter's state. Tensors are copied, since they are mapped from a
    file that may be overwritten; to the order in memory that the parameter has, such as ``channels_last``, since
    torch's fused optimizers go through both in the order of the memory."""
    if not isinstance(value, torch.Tensor):
        return value
    parameter = strategy.parameters[name]
    is_sharded = value.ndim > 0 and value.shape == parameter.shape  # unlike the number of steps
    shard = strategy.shard_like(name, value) if is_sharded else value
    if not is_sharded or is_dtensor(parameter):
        return shard.clone(memory_format=torch.contiguous_format)
    return torch.empty_like(parameter, dtype=shard.dtype, requires_grad=False).copy_(shard)


def learning_rate(config: Train, step: int, total_steps: int) -> float:
    """Return the learning rate of a step, counted from 0: linear warm-up from zero, then the schedule down to zero.

    A pure function of the step, so that no state needs to be saved.

    Example:
        >>> config = Train(max_steps=4, lr=1.0, schedule="linear", warmup_fraction=0.5)
        >>> [learning_rate(config, step, 4) for step in range(4)]
        [0.5, 1.0, 1.0, 0.5]
    """
    warmup_steps = math.ceil(round(config.warmup_fraction * total_steps, 6))  # 0.07 * 100 is a little above 7
    if step < warmup_steps:
        return config.lr * (step + 1) / warmup_steps  # step + 1, since a step at rate 0 would be wasted
    # From 0 at the first step after the warm-up to just below 1 at the last one, so that it too has a rate above 0.
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    if config.schedule == "linear":
        return config.lr * (1 - progress)
    if config.schedule == "cosine":
        return config.lr * (1 + math.cos(math.pi * progress)) / 2
    return config.lr
