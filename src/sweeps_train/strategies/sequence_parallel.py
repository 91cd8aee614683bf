"""Sequence parallel (Korthikanti et al., 2022, https://arxiv.org/abs/2205.05198): between the blocks whose layers are
cut for tensor parallelism, each worker has a part of the tokens, and keeps a part of what norms and residuals make.

torch's own style for it wants to be told of every norm, which transformers' plans do not name; here blocks gather the
tokens, and what is neither a block nor within one is left to see its part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard

from sweeps_train.strategies.layers import mixes_tokens, repeated_layers


def share_tokens(model: nn.Module, plan: Mapping[str, str], workers: DeviceMesh) -> list[str]:
    """Lets workers have a part of the tokens between the blocks of a model's layers, and all of them outside of layers.

    Args:
        model: Whose layers are to be cut, those by rows so that they give parts of the tokens.
        plan: Which are cut, and how.
        workers: Of one dimension: those who cut them.

    Returns:
        What the names of parameters begin with that see a part of the tokens, so that gradients are to be added up.

    Raises:
        ValueError: The model has no layers one after another, or more between their tokens than what is cut.
    """
    names = {module: f"{name}." for name, module in model.named_modules()}
    layers = repeated_layers(model)
    if not layers:
        raise ValueError(
            f"strategy.sequence_parallel=true: a {type(model).__name__} has no list of layers; set it to false"
        )
    layers[0].register_forward_pre_hook(lambda _, args: (_part(args[0], workers), *args[1:]))
    layers[-1].register_forward_hook(lambda _, __, made: _whole(made, workers))
    of_parts = []
    for block in (child for layer in layers for child in layer.children()):
        within = {style for name, style in plan.items() if f"{name}.".startswith(names[block])}
        if not within:
            if mixes_tokens(block):
                raise ValueError(
                    f"strategy.sequence_parallel=true: {names[block]} of a {type(model).__name__} is not cut, and sees "
                    "other tokens than its own; set it to false"
                )
            of_parts.append(names[block])
        elif within != {"rowwise"}:  # which alone takes what blocks have made of all tokens
            block.register_forward_pre_hook(lambda _, args, kwargs: _gathered(args, kwargs, workers), with_kwargs=True)
    # The second matrix of an adapter, where the first one is cut by rows.
    adapters = [name for name, style in plan.items() if style == "rowwise" and ".lora_A." in name]
    return of_parts + [f"{name.replace('.lora_A.', '.lora_B.')}." for name in adapters]


def _gathered(args: tuple[Any, ...], kwargs: dict[str, Any], workers: DeviceMesh) -> tuple[tuple[Any, ...], Any]:
    """All tokens for a block, which are its first argument, or what transformers calls so."""
    if args:
        return (_whole(args[0], workers), *args[1:]), kwargs
    return args, {**kwargs, "hidden_states": _whole(kwargs["hidden_states"], workers)}


def _part(tensor: torch.Tensor, workers: DeviceMesh) -> torch.Tensor:
    tokens = tensor.shape[1]
    if tokens % workers.size():
        raise ValueError(
            f"strategy.sequence_parallel=true: {workers.size()} workers cannot share {tokens} tokens equally; set it "
            "to false"
        )
    return _placed(tensor, Replicate(), Shard(1), workers)


def _whole(tensor: torch.Tensor, workers: DeviceMesh) -> torch.Tensor:
    return _placed(tensor, Shard(1), Replicate(), workers)


def _placed(tensor: torch.Tensor, now: Placement, then: Placement, workers: DeviceMesh) -> torch.Tensor:
    """Gradients go the way back: of all tokens every worker has them whole, since layers that are cut add them up."""
    placed = DTensor.from_local(tensor, workers, [now], run_check=False).redistribute(placements=[then])
    local: torch.Tensor = placed.to_local(grad_placements=[then])
    return local
