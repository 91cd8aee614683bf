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


def checkpoint_activations(model: nn.Module) -> None:
    """Layers keep their inputs alone, and compute the rest again in the backward pass."""
    for layer in repeated_layers(model):
        _checkpoint(layer)


def _checkpoint(layer: nn.Module) -> None:
    """Around ``forward`` and not around the call, whose hooks (those of ``fully_shard``) must run once."""
    forward = layer.forward

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if not layer.training:
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    layer.forward = checkpointed
