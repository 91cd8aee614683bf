"""The file of a model's weights in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from torch import nn

WEIGHTS_FILE = "model.safetensors"


def save_weights(model: nn.Module, folder: Path, weights: Mapping[str, torch.Tensor] | None = None) -> None:
    """Write the model's weights, or the given weights if it holds only shards."""
    if weights is None:
        safetensors.torch.save_model(model, str(folder / WEIGHTS_FILE))
    else:
        contiguous = {name: each.contiguous() for name, each in weights.items()}
        safetensors.torch.save_file(contiguous, str(folder / WEIGHTS_FILE))
