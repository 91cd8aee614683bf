"""A small vision transformer (Dosovitskiy et al., 2020, https://arxiv.org/abs/2010.11929)."""

from __future__ import annotations

import torch
from torch import nn

from sweeps_train.config import VisionTransformer
from sweeps_train.data.images import ImageShape


class VisionTransformerClassifier(nn.Module):
    """Patches as tokens, learned positions, layers that normalise first, a linear classifier over the tokens' mean.

    The mean in place of a class token is from Beyer et al., 2022 (https://arxiv.org/abs/2205.01580).
    """

    def __init__(self, config: VisionTransformer, shape: ImageShape):
        """
        Raises:
            ValueError: The patches do not tile the images.
        """
        super().__init__()
        if shape.height % config.patch_size or shape.width % config.patch_size:
            raise ValueError(
                f"model.patch_size={config.patch_size} does not divide images of {shape.height}x{shape.width} pixels; "
                "use one that divides both"
            )
        patches = (shape.height // config.patch_size) * (shape.width // config.patch_size)
        self.embed = nn.Conv2d(shape.channels, config.width, kernel_size=config.patch_size, stride=config.patch_size)
        self.positions = nn.Parameter(0.02 * torch.randn(patches, config.width))
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                config.width,
                config.heads,
                dim_feedforward=4 * config.width,
                dropout=config.dropout,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(config.width)
        self.classifier = nn.Linear(config.width, shape.classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images of shape (batch, channels, height, width) to logits of shape (batch, classes)."""
        tokens = self.embed(images).flatten(2).transpose(1, 2)  # (batch, patches, width)
        tokens = self.dropout(tokens + self.positions)
        for layer in self.layers:
            tokens = layer(tokens)
        logits: torch.Tensor = self.classifier(self.norm(tokens).mean(dim=1))
        return logits
