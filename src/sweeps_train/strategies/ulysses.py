"""Attention over sequences that are cut over workers: DeepSpeed's Ulysses (Jacobs et al., 2023,
https://arxiv.org/abs/2309.14509).

Each worker has a part of the tokens, with all heads. For attention they exchange: each gets all tokens, with a part of
the heads, and so needs nothing but what the model itself does there, with its own masks. Then they exchange back.
torch's own ring attention takes no masks, and works on GPUs alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from sweeps_train.strategies.layers import bare_model, mixes_tokens, repeated_layers

OF_EACH_HEAD = "s_aux", "position_bias"
"""What attention may be given that has a value for each head."""


def cut_sequences(model: nn.Module, workers: DeviceMesh) -> None:
    """Lets the layers of a causal language model see this worker's part of the tokens, and its attention all of them.

    It is called with whole sequences, whose length the number of workers divides: of them the model makes masks and
    positions by its own rules. Its logits are of this worker's part.

    Args:
        model: As every worker has built it, by transformers.
        workers: Of one dimension: those who share sequences.

    Raises:
        ValueError: The model has more between its tokens than attention, or heads that cannot be shared.
    """
    bare = bare_model(model)
    attention = attention_to_share(bare, workers.size())
    layers = repeated_layers(bare)
    layers[0].register_forward_pre_hook(lambda _, args: (part(args[0], workers), *args[1:]))
    for layer in layers:
        layer.register_forward_pre_hook(lambda _, args, kwargs: (args, _of_part(kwargs, workers)), with_kwargs=True)
    bare.set_attn_implementation(_shared(attention, workers))


def part(whole: torch.Tensor, workers: DeviceMesh) -> torch.Tensor:
    """This worker's part of the tokens, which are the second dimension."""
    return whole.chunk(workers.size(), dim=1)[workers.get_local_rank()]


def _of_part(kwargs: dict[str, Any], workers: DeviceMesh) -> dict[str, Any]:
    """What a layer is given besides its tokens: rotary positions are for this worker's, masks for the attention."""
    positions = {
        name: tuple(part(each, workers) for each in given)
        for name, given in kwargs.items()
        if name.startswith("position_embeddings")
    }
    return {**kwargs, **positions}


def attention_to_share(model: Any, size: int) -> str:
    """transformers' name of the attention that a model has.

    Raises:
        ValueError: Workers cannot share it.
    """
    kind = type(model).__name__
    if mixes_tokens(model) or not getattr(getattr(model, "config", None), "base_model_pp_plan", None):
        raise ValueError(
            f"strategy.kind=context_parallel: a {kind} is not known to be layers of attention alone, whose sequences "
            "can be cut; use strategy.kind=fsdp"
        )
    attention: str = model.config._attn_implementation  # noqa: SLF001 - transformers has no public name for it
    if attention == "eager":
        raise ValueError(
            f"strategy.kind=context_parallel: the attention of a {kind} is eager, which is not for long sequences; "
            "use model.attention=sdpa, or flash_attention_2 on GPUs"
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


def _shared(attention: str, workers: DeviceMesh) -> str:
    """Registers that attention with the exchanges around it; returns its name."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    attend = ALL_ATTENTION_FUNCTIONS[attention]

    def attend_together(
        module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, None]:
        for given in OF_EACH_HEAD:
            if kwargs.get(given) is not None:
                raise ValueError(
                    f"strategy.kind=context_parallel: attention with {given} of each head cannot be shared by workers; "
                    "use strategy.kind=fsdp"
                )
        group = workers.get_group()  # not held on to, since transformers' register outlives it
        of_heads = (_exchange(each, group) for each in (query, key, value))
        with _called(attention, module):
            made, *_ = attend(module, *of_heads, *args, **kwargs)
        return _exchange(made, group), None

    name = f"context_parallel_{attention}"
    AttentionInterface.register(name, attend_together)
    AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS[attention])
    return name


@contextmanager
def _called(attention: str, module: nn.Module) -> Iterator[None]:
    """transformers' flash attention looks up by that name what it is."""
    config: Any = module.config
    ours = config._attn_implementation_internal  # noqa: SLF001 - what is behind the public name, which would warn
    config._attn_implementation_internal = attention  # noqa: SLF001
    try:
        yield
    finally:
        config._attn_implementation_internal = ours  # noqa: SLF001


class _Exchange(torch.autograd.Function):
    """From a part of the third dimension to a part of the second: of queries, keys and values, tokens are the third and
    heads the second; of what attention makes of them, the other way round. Gradients go the way back."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        return _exchanged(tensor, 1, 2, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _exchanged(gradient, 2, 1, ctx.group), None


def _exchange(tensor: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    exchanged: torch.Tensor = _Exchange.apply(tensor, group)  # type: ignore[no-untyped-call]
    return exchanged


def _exchanged(tensor: torch.Tensor, cut: int, joined: int, group: dist.ProcessGroup) -> torch.Tensor:
    sent = torch.stack(tensor.chunk(group.size(), dim=cut))
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    return torch.cat(received.unbind(), dim=joined)
