"""Linear layers with 8-bit floating-point multiplication, by torchao.

Weights stay in the type in which they are trained. When they are multiplied, weights, inputs and gradients are
converted to 8 bits with a scale for each tensor (Micikevicius et al., 2022, https://arxiv.org/abs/2209.05433).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sweeps_train.devices.device_operations import name_of

MULTIPLE = 16
"""Divisor that all sizes of a matrix must have for 8-bit multiplication on a GPU."""
_AMD = ("gfx942", "gfx950")
"""Architectures of AMD's MI300 and MI350."""
_ROUTERS = ("gate", "router")
"""Names of layers that choose experts, which need more than 8 bits."""


def multiplies_float8(device: torch.device) -> bool:
    """Whether a device supports multiplication of 8-bit floating-point numbers."""
    if device.type != "cuda":
        return False
    if torch.version.hip is not None:
        return torch.cuda.get_device_properties(device).gcnArchName.split(":")[0] in _AMD
    return torch.cuda.get_device_capability(device) >= (8, 9)


def check_float8(device: torch.device) -> None:
    """Raise ``ValueError`` if the device does not support 8-bit floating-point multiplication."""
    if not multiplies_float8(device):
        raise ValueError(
            f"train.precision=fp8: {name_of(device)} does not support 8-bit floating-point multiplication; use "
            "train.precision=auto, or a GPU of compute capability 8.9 or later (L4, L40, RTX 40, H100, ...)"
        )


def convert_to_float8(model: nn.Module, *, emulate: bool = False) -> None:
    """Replace the linear layers of suitable size of a model without wrappers, in place; parameters and names stay.

    The head of a language model and layers that choose experts are left alone. With ``emulate``, numbers are rounded to
    8 bits and multiplied in float32, on devices without 8-bit multiplication.

    Raises:
        ValueError: The model has no such layer.
    """
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None  # type: ignore[operator]
    names: list[str] = []

    def fits(module: nn.Module, name: str) -> bool:
        able = (
            isinstance(module, nn.Linear)
            and module is not head
            and name.rpartition(".")[2] not in _ROUTERS
            and not module.in_features % MULTIPLE
            and not module.out_features % MULTIPLE
        )
        if able:
            names.append(name)
        return able

    # Padded, since gradients of weights are sums over the tokens of a batch, whose number is arbitrary.
    config: Any = Float8LinearConfig(emulate=emulate, pad_inner_dim=True)
    convert_to_float8_training(model, module_filter_fn=fits, config=config)
    if not names:
        raise ValueError(
            f"train.precision=fp8: a {type(model).__name__} has no linear layer whose sizes are multiples of "
            f"{MULTIPLE}; use train.precision=bf16"
        )
