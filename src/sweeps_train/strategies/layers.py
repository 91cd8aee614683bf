"""Model structure as strategies need it, and activation checkpointing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from sweeps_train.compat.torch import uncompile

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
"""Layers that change their running means in the forward pass, and whose weights must have the type of these."""


def bare_model(model: nn.Module) -> Any:
    """Return the model without the wrapper that peft puts around it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator] # peft's


def repeated_layers(model: nn.Module) -> list[nn.Module]:
    """Return the outermost layers that a model holds in module lists, such as transformer blocks; possibly none.

    >>> model = nn.Sequential(nn.Flatten(), nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]))
    >>> len(repeated_layers(model))
    2
    """
    layers: list[nn.Module] = []
    for child in model.children():
        layers += list(child) if isinstance(child, nn.ModuleList) else repeated_layers(child)
    return layers


def compile_layers(model: nn.Module) -> None:
    """Compile a model in place at its first call: its repeated layers one by one, sharing the compiled code, or else
    the whole model."""
    for each in repeated_layers(model) or [model]:
        each.compile()


def forget_compiled(model: nn.Module) -> None:
    """Undo ``compile_layers``, since another training may use the same base model."""
    for each in repeated_layers(model) or [model]:
        uncompile(each)


def mixes_tokens(module: nn.Module) -> bool:
    """Whether layers other than attention mix tokens, such as recurrent layers or the convolutions of linear
    attention."""
    return any(isinstance(each, nn.Conv1d) for each in module.modules())


def checkpoint_activations(model: nn.Module, *, early_stop: bool = True) -> None:
    """Make the repeated layers of a model keep only their inputs, and recompute the rest in the backward pass. With
    ``early_stop``, the computation ends at the last tensor needed; it must be False where layers communicate, since
    torch would hold on to collectives that were started but not waited for."""
    for layer in repeated_layers(model):
        _checkpoint(layer, early_stop=early_stop)


def _checkpoint(layer: nn.Module, *, early_stop: bool) -> None:
    """Apply activation checkpointing to a layer's ``forward`` rather than to its call, so that hooks (such as those of
    ``fully_shard``) run only once."""
    forward = layer.forward
    norms = [each for each in layer.modules() if isinstance(each, BATCH_NORMS)]
    options: dict[str, Any] = {"context_fn": lambda: (nullcontext(), _running_means_kept(norms))} if norms else {}

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if not layer.training:
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, early_stop=early_stop, **options, **kwargs)

    layer.forward = checkpointed


@contextmanager
def _running_means_kept(norms: Sequence[nn.Module]) -> Iterator[None]:
    """Restore the running means of batch norms at the end: the samples of a layer change them only once."""
    buffers = [each for norm in norms for each in norm.buffers()]
    before = [each.clone() for each in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for each, value in zip(buffers, before, strict=True):
                each.copy_(value)
