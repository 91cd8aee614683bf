"""Dtypes of trained weights. In 16 bits, most optimizer steps are smaller than the rounding error, so that weights
would not change; they are therefore trained in float32. Autocast and the sharding strategies still compute in 16
bits."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn

SHORT = (torch.float16, torch.bfloat16)


def short_types(model: nn.Module) -> dict[str, torch.dtype]:
    """Return the dtypes of the trained 16-bit weights, by name."""
    return {
        name: parameter.dtype
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and parameter.dtype in SHORT
    }


def hold_in_float32(
    module: nn.Module, names: Collection[str], prefix: str = "", device: torch.device | None = None
) -> None:
    """Convert 16-bit weights to float32, in place, one after another.

    Args:
        module: A model or a part of it.
        names: Names of weights of the model; those outside of ``module`` or already converted are left alone.
        prefix: Name of the part in the model.
        device: Device to which the weights are moved first: in float32, the weights of several workers would not fit
            into the machine's memory. Weights of other workers, on ``meta``, stay there. Default: all stay where they
            are.
    """
    for name, parameter in module.named_parameters(prefix=prefix):
        if name in names and parameter.dtype in SHORT:
            stays = device is None or parameter.is_meta
            parameter.data = (parameter.data if stays else parameter.data.to(device)).float()
