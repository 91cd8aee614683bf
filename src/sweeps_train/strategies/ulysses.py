"""Attention over sequences that are sharded over workers: DeepSpeed's Ulysses (Jacobs et al., 2023,
https://arxiv.org/abs/2309.14509).

Each worker has a part of the tokens with all attention heads. For attention, workers exchange these so that each has
all tokens with a part of the heads, on which the model's own attention runs with its own masks. Then they exchange
back. torch's ring attention takes no masks and needs GPUs.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from sweeps_train.compat.transformers import (
    attention_function,
    attention_name,
    attention_named,
    mask_function,
    register_attention,
)
from sweeps_train.strategies.layers import bare_model, mixes_tokens, repeated_layers

PER_HEAD_ARGUMENTS = "s_aux", "position_bias"
"""Arguments of transformers' attention functions that have a value for each head."""


def shard_sequences(model: nn.Module, row: DeviceMesh) -> None:
    """Shard the tokens of a transformers model's layers over the workers of a mesh row, in place; its attention still
    sees all of them.

    The model is called with full sequences, whose length is divisible by the number of workers, and makes masks and
    positions from them by its own rules. It returns the logits of this worker's tokens.

    Raises:
        ValueError: Layers other than attention mix tokens, or the heads cannot be shared equally.
    """
    bare = bare_model(model)
    attention = attention_to_share(bare, row.size())
    layers = repeated_layers(bare)
    layers[0].register_forward_pre_hook(lambda _, args: (shard_tokens(args[0], row), *args[1:]))
    for layer in layers:
        layer.register_forward_pre_hook(lambda _, args, kwargs: (args, _shard_positions(kwargs, row)), with_kwargs=True)
    bare.set_attn_implementation(_register_shared(attention, row))


def shard_tokens(tensor: torch.Tensor, row: DeviceMesh) -> torch.Tensor:
    """Return this worker's tokens of a tensor of shape (batch, tokens, ...)."""
    return tensor.chunk(row.size(), dim=1)[row.get_local_rank()]


def _shard_positions(kwargs: dict[str, Any], row: DeviceMesh) -> dict[str, Any]:
    """Return a layer's keyword arguments with the rotary positions of this worker's tokens; masks stay complete for
    attention."""
    positions = {
        name: tuple(shard_tokens(each, row) for each in embeddings)
        for name, embeddings in kwargs.items()
        if name.startswith("position_embeddings")
    }
    return {**kwargs, **positions}


def attention_to_share(model: Any, size: int) -> str:
    """Return the name of a model's attention implementation in transformers, after checking that workers can share it.

    Raises:
        ValueError: The workers cannot share this model's attention.
    """
    kind = type(model).__name__
    if mixes_tokens(model) or not getattr(getattr(model, "config", None), "base_model_pp_plan", None):
        raise ValueError(
            f"strategy.kind=context_parallel: layers of a {kind} may mix tokens without attention, so that sequences "
            "cannot be sharded; use strategy.kind=fsdp"
        )
    attention = attention_name(model.config)
    if attention == "eager":
        raise ValueError(
            f"strategy.kind=context_parallel: the attention of a {kind} is eager, which is unsuitable for long "
            "sequences; use model.attention=sdpa, or flash_attention_2 on GPUs"
        )
    config = model.config.get_text_config()
    for name in ("num_attention_heads", "num_key_value_heads"):
        if (heads := getattr(config, name, None)) and heads % size:
            fits = [each for each in range(1, heads + 1) if heads % each == 0]
            raise ValueError(
                f"strategy.size: {size} workers cannot share the {heads} heads ({name}) equally; set it to one of "
                f"{fits}"
            )
    return attention


def _register_shared(attention: str, row: DeviceMesh) -> str:
    """Register an attention implementation that adds the exchanges before and after, and return its name."""
    attend = attention_function(attention)

    def attend_together(
        module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, None]:
        for name in PER_HEAD_ARGUMENTS:
            if kwargs.get(name) is not None:
                raise ValueError(
                    f"strategy.kind=context_parallel: attention with {name} of each head cannot be shared by workers; "
                    "use strategy.kind=fsdp"
                )
        group = row.get_group()  # not stored, since transformers' registry outlives it
        by_heads = (_exchange(each, group) for each in (query, key, value))
        # Flash attention looks up its kernels by the name in the config.
        with attention_named(module.config, attention):
            output, *_ = attend(module, *by_heads, *args, **kwargs)
        return _exchange(output, group), None

    name = f"context_parallel_{attention}"
    register_attention(name, attend_together, mask_function(attention))
    return name


class _Exchange(torch.autograd.Function):
    """All-to-all that changes a tensor's sharding from the third to the second dimension, and back for gradients.

    Queries, keys and values have heads as second and tokens as third dimension; the output of attention has them the
    other way round.
    """

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        return _all_to_all(tensor, 1, 2, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _all_to_all(gradient, 2, 1, ctx.group), None


def _exchange(tensor: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    exchanged: torch.Tensor = _Exchange.apply(tensor, group)  # type: ignore[no-untyped-call]
    return exchanged


def _all_to_all(tensor: torch.Tensor, split: int, joined: int, group: dist.ProcessGroup) -> torch.Tensor:
    sent = torch.stack(tensor.chunk(group.size(), dim=split))
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    return torch.cat(received.unbind(), dim=joined)
