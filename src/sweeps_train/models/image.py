"""Image classifiers: building them, and their files in a checkpoint."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_model as load_weights
from torch import nn

from sweeps_train.config import ConvNet, CustomModel, VisionTransformer
from sweeps_train.data.images import ImageShape
from sweeps_train.models.conv_net import ConvNetClassifier
from sweeps_train.models.vision_transformer import VisionTransformerClassifier
from sweeps_train.models.weights import WEIGHTS_FILE, checked_module, save_weights
from sweeps_train.targets import call_target

SHAPE_FILE = "image_shape.json"
"""File with channels, height, width and classes, so that a checkpoint can be loaded without its data."""

ImageModel = ConvNet | VisionTransformer | CustomModel


def build_image_model(config: ImageModel, shape: ImageShape | None) -> nn.Module:
    """Build an initialised model for images of a shape, which a custom model does not need.

    Returns:
        A module that maps inputs of shape (batch, channels, height, width) to logits of shape (batch, classes).

    Raises:
        ValueError: The model does not fit the images, or a user's own cannot be built.

    Example:
        >>> config = ConvNet(kind="conv_net", channels=4)
        >>> model = build_image_model(config, ImageShape(channels=1, height=8, width=8, classes=10))
        >>> model(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """
    if isinstance(config, CustomModel):
        return checked_module(config.target, call_target("model", config.target, config.arguments))
    assert shape is not None
    if isinstance(config, ConvNet):
        return ConvNetClassifier(config, shape)
    return VisionTransformerClassifier(config, shape)


def save_image_model(
    model: nn.Module, shape: ImageShape | None, folder: Path, weights: Mapping[str, torch.Tensor] | None = None
) -> None:
    """Write the shape of the images and the model's weights, or the given weights if it holds only shards."""
    save_weights(model, folder, weights)
    if shape is not None:
        (folder / SHAPE_FILE).write_text(json.dumps(dataclasses.asdict(shape)), encoding="utf-8")


def load_image_shape(folder: Path) -> ImageShape | None:
    """Load the shape of the images of a model that ``save_image_model`` has written; None if a custom model has
    none."""
    file = folder / SHAPE_FILE
    return ImageShape(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None


def load_image_model(config: ImageModel, folder: Path) -> nn.Module:
    """Load a model that ``save_image_model`` has written."""
    model = build_image_model(config, load_image_shape(folder))
    load_weights(model, str(folder / WEIGHTS_FILE))
    return model
