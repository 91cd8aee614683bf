"""A small vision transformer (Dosovitskiy et al., 2020, https://arxiv.org/abs/2010.11929)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from sweeps_train.config import VisionTransformer
from sweeps_train.data.images import ImageShape


class VisionTransformerClassifier(nn.Module):
    """Vision transformer with patches as tokens, learned positions, pre-norm layers, and a linear classifier over the
    mean of all tokens.

    The mean instead of a class token follows Beyer et al., 2022 (https://arxiv.org/abs/2205.01580).
    """

    tensor_parallel_plan = {  # noqa: RUF012 - a constant that strategies read
        **{f"layers.*.{name}": "colwise" for name in ("query", "key", "value", "expand")},
        **{f"layers.*.{name}": "rowwise" for name in ("join", "contract")},
    }

    def __init__(self, config: VisionTransformer, shape: ImageShape):
        """Raise ``ValueError`` if the patches do not tile the images."""
        super().__init__()
        if shape.height % config.patch_size or shape.width % config.patch_size:
            raise ValueError(
                f"model.patch_size={config.patch_size} does not divide images of {shape.height}x{shape.width} pixels; "
                "use one that divides both"
            )
        self.embedding = PatchEmbedding(config, shape)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.depth))
        self.head = Head(config, shape)

    def parts(self) -> list[nn.Module]:
        """Return the modules that are applied one after another, between which a pipeline can divide the model."""
        return [self.embedding, *self.layers, self.head]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map images of shape (batch, channels, height, width) to logits of shape (batch, classes)."""
        for part in self.parts():
            images = part(images)
        return images


class PatchEmbedding(nn.Module):
    def __init__(self, config: VisionTransformer, shape: ImageShape):
        super().__init__()
        patches = (shape.height // config.patch_size) * (shape.width // config.patch_size)
        self.project = nn.Conv2d(shape.channels, config.width, kernel_size=config.patch_size, stride=config.patch_size)
        self.positions = nn.Parameter(0.02 * torch.randn(patches, config.width))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map images of shape (batch, channels, height, width) to tokens of shape (batch, patches, width)."""
        tokens: torch.Tensor = self.project(images).flatten(2).transpose(1, 2)
        embedded: torch.Tensor = self.dropout(tokens + self.positions)
        return embedded


class Layer(nn.Module):
    """A transformer layer: attention and a perceptron, each after a norm and with a residual connection."""

    def __init__(self, config: VisionTransformer):
        super().__init__()
        width = config.width
        self._head_width = width // config.heads
        self._dropout = config.dropout
        self.attention_norm = nn.LayerNorm(width)
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.join = nn.Linear(width, width)
        self.perceptron_norm = nn.LayerNorm(width)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map tokens of shape (batch, patches, width) to tokens of the same shape."""
        tokens = tokens + self.dropout(self.join(self._attention(self.attention_norm(tokens))))
        hidden = self.dropout(functional.gelu(self.expand(self.perceptron_norm(tokens))))
        after: torch.Tensor = tokens + self.dropout(self.contract(hidden))
        return after

    def _attention(self, tokens: torch.Tensor) -> torch.Tensor:
        # With tensor parallelism a worker has some of the heads, hence -1.
        query, key, value = (
            each(tokens).unflatten(-1, (-1, self._head_width)).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        )
        dropout = self._dropout if self.training else 0.0
        return functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout).transpose(1, 2).flatten(2)


class Head(nn.Module):
    def __init__(self, config: VisionTransformer, shape: ImageShape):
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.classifier = nn.Linear(config.width, shape.classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map tokens of shape (batch, patches, width) to logits of shape (batch, classes)."""
        logits: torch.Tensor = self.classifier(self.norm(tokens).mean(dim=1))
        return logits
