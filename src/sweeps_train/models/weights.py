"""A model's weights: their file in a checkpoint, and what a user's own model must have of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import nn
from torch.nn.parameter import is_lazy

WEIGHTS_FILE = "model.safetensors"


def checked_module(target: str, made: Any) -> nn.Module:
    """Check that a user's class or function has made a usable module, and return it; ``target`` names it in messages.

    Raises:
        ValueError: It is no module, or has weights without a size.
    """
    if not isinstance(made, nn.Module):
        raise ValueError(  # noqa: TRY004 - a mistake in the config
            f"model._target_={target} returned {type(made).__name__}; it must be a torch Module"
        )
    if any(map(is_lazy, made.parameters())):
        raise ValueError(
            f"model._target_={target} has lazy layers, whose weights have no size before the first batch; give the "
            "sizes, as in nn.Linear, or call the module with a batch of zeros at the end of its __init__"
        )
    return made


def save_weights(model: nn.Module, folder: Path, weights: Mapping[str, torch.Tensor] | None = None) -> None:
    """Write the model's weights, or the given weights if it holds only shards."""
    if weights is None:
        safetensors.torch.save_model(model, str(folder / WEIGHTS_FILE))
    else:
        contiguous = {name: each.contiguous() for name, each in weights.items()}
        safetensors.torch.save_file(contiguous, str(folder / WEIGHTS_FILE))
