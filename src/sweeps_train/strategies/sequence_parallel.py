"""Sequence parallel (Korthikanti et al., 2022, https://arxiv.org/abs/2205.05198): between tensor parallel blocks each
worker processes part of the tokens, and keeps only its part of the activations of norms and residuals.

torch's ``SequenceParallel`` style needs every norm listed by name, which the plans of transformers do not do. Here each
block gathers the tokens on entry, and modules outside of blocks simply see their part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard

from sweeps_train.strategies.layers import mixes_tokens, repeated_layers


def share_tokens(model: nn.Module, plan: Mapping[str, str], row: DeviceMesh) -> list[str]:
    """Shard the tokens between the blocks of a model's layers; outside of the layers, every worker has all tokens.

    Args:
        model: The model before ``parallelize_module``, whose row-wise layers will return shards of the tokens.
        plan: The style of each layer that is sharded, by name.
        row: One-dimensional mesh of the workers that share tokens.

    Returns:
        Name prefixes of the parameters that see a part of the tokens, so that their gradients are to be summed.

    Raises:
        ValueError: The model has no list of layers, or layers that mix tokens outside of the plan.
    """
    names = {module: f"{name}." for name, module in model.named_modules()}
    layers = repeated_layers(model)
    if not layers:
        raise ValueError(
            f"strategy.sequence_parallel=true: a {type(model).__name__} has no list of layers; set it to false"
        )
    layers[0].register_forward_pre_hook(lambda _, args: (_shard(args[0], row), *args[1:]))
    layers[-1].register_forward_hook(lambda _, __, output: _gather(output, row))
    token_sharded = []
    for block in (child for layer in layers for child in layer.children()):
        styles = {style for name, style in plan.items() if f"{name}.".startswith(names[block])}
        if not styles:
            if mixes_tokens(block):
                raise ValueError(
                    f"strategy.sequence_parallel=true: {names[block]} of a {type(model).__name__} is not sharded, but "
                    "mixes tokens; set it to false"
                )
            token_sharded.append(names[block])
        elif styles != {"rowwise"}:  # a row-wise block continues a column-wise one, which has gathered the tokens
            block.register_forward_pre_hook(lambda _, args, kwargs: _gather_input(args, kwargs, row), with_kwargs=True)
    # The second matrix of an adapter on a row-wise layer is not sharded, and sees a part of the tokens.
    adapters = [name for name, style in plan.items() if style == "rowwise" and ".lora_A." in name]
    return token_sharded + [f"{name.replace('.lora_A.', '.lora_B.')}." for name in adapters]


def _gather_input(args: tuple[Any, ...], kwargs: dict[str, Any], row: DeviceMesh) -> tuple[tuple[Any, ...], Any]:
    """Gather a block's tokens: its first argument, or ``hidden_states`` as transformers names it."""
    if args:
        return (_gather(args[0], row), *args[1:]), kwargs
    return args, {**kwargs, "hidden_states": _gather(kwargs["hidden_states"], row)}


def _shard(tensor: torch.Tensor, row: DeviceMesh) -> torch.Tensor:
    tokens = tensor.shape[1]
    if tokens % row.size():
        raise ValueError(
            f"strategy.sequence_parallel=true: {row.size()} workers cannot share {tokens} tokens equally; set it "
            "to false"
        )
    return _redistribute(tensor, Replicate(), Shard(1), row)


def _gather(tensor: torch.Tensor, row: DeviceMesh) -> torch.Tensor:
    return _redistribute(tensor, Shard(1), Replicate(), row)


def _redistribute(tensor: torch.Tensor, before: Placement, after: Placement, row: DeviceMesh) -> torch.Tensor:
    """Change a tensor's placement, and that of its gradients in reverse. Gradients of gathered tokens are already
    complete on every worker, since sharded layers sum them."""
    moved = DTensor.from_local(tensor, row, [before], run_check=False).redistribute(placements=[after])
    local: torch.Tensor = moved.to_local(grad_placements=[after])
    return local
