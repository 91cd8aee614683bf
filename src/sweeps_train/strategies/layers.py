"""The layers of a model, as far as strategies need to know them."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint


def bare_model(model: nn.Module) -> Any:
    """Without adapters around it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator] # peft's


def repeated_layers(model: nn.Module) -> list[nn.Module]:
    """The outermost layers that a model has in lists: decoder layers, transformer blocks. May be none."""
    layers: list[nn.Module] = []
    for child in model.children():
        layers += list(child) if isinstance(child, nn.ModuleList) else repeated_layers(child)
    return layers


def mixes_tokens(module: nn.Module) -> bool:
    """Whether more than attention goes from token to token: recurrent layers and linear attention have convolutions."""
    return any(isinstance(each, nn.Conv1d) for each in module.modules())


def checkpoint_activations(model: nn.Module, *, to_the_end: bool = False) -> None:
    """Layers keep their inputs alone, and compute the rest again in the backward pass.

    Args:
        model: Whose layers do so.
        to_the_end: Also what the backward pass has no use for: where layers talk to other workers, torch would keep
            for ever what was asked for and not waited for.
    """
    for layer in repeated_layers(model):
        _checkpoint(layer, to_the_end=to_the_end)


def _checkpoint(layer: nn.Module, *, to_the_end: bool) -> None:
    """Around ``forward`` and not around the call, whose hooks (those of ``fully_shard``) must run once."""
    forward = layer.forward

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if not layer.training:
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, early_stop=not to_the_end, **kwargs)

    layer.forward = checkpointed
