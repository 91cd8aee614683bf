"""A small convolutional network."""

from __future__ import annotations

import torch
from torch import nn

from sweeps_train.config import ConvNet
from sweeps_train.data.images import ImageShape


class ConvNetClassifier(nn.Module):
    """Blocks of convolution, normalisation, ReLU and pooling, then a linear classifier.

    Group normalisation (Wu & He, 2018, https://arxiv.org/abs/1803.08494) instead of batch normalisation makes a
    sample's result independent of other samples, so that training does not depend on how a batch is split over workers.
    """

    def __init__(self, config: ConvNet, shape: ImageShape):
        """Raise ``ValueError`` if the images are too small for this many blocks."""
        super().__init__()
        if min(shape.height, shape.width) < 2**config.blocks:
            raise ValueError(
                f"model.blocks={config.blocks} halve images of {shape.height}x{shape.width} pixels to nothing; "
                f"use at most {min(shape.height, shape.width).bit_length() - 1}"
            )
        layers: list[nn.Module] = []
        channels_in = shape.channels
        for block in range(config.blocks):
            channels = config.channels * 2**block
            layers += [
                nn.Conv2d(channels_in, channels, kernel_size=3, padding=1),
                nn.GroupNorm(1, channels),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ]
            channels_in = channels
        self.features = nn.Sequential(*layers)
        self.flatten = nn.Flatten(1)
        self.dropout = nn.Dropout(config.dropout)
        pixels = (shape.height >> config.blocks) * (shape.width >> config.blocks)
        self.classifier = nn.Linear(channels_in * pixels, shape.classes)

    def parts(self) -> list[nn.Module]:
        """Return the modules that are applied one after another, between which a pipeline can divide the model."""
        return [*self.features, self.flatten, self.dropout, self.classifier]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map images of shape (batch, channels, height, width) to logits of shape (batch, classes)."""
        for part in self.parts():
            images = part(images)
        return images
