"""A multilayer perceptron for tables."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import nn

from sweeps_train.config import Mlp

LARGEST_EMBEDDING = 50


class TableMlp(nn.Module):
    """Category embeddings concatenated with the numbers, then hidden layers with ReLU and dropout.

    >>> model = TableMlp(Mlp(kind="mlp"), num_numbers=3, category_sizes=[5], num_outputs=2)
    >>> model(torch.zeros(4, 3), torch.zeros(4, 1, dtype=torch.int64)).shape
    torch.Size([4, 2])
    """

    def __init__(self, config: Mlp, num_numbers: int, category_sizes: Sequence[int], num_outputs: int):
        """Build the layers. ``category_sizes`` are the numbers of indices of each column; ``num_outputs`` is the number
        of classes, or 1."""
        super().__init__()
        sizes = [config.embedding or embedding_size(size) for size in category_sizes]
        self.embeddings = nn.ModuleList(
            _embedding(number, size) for number, size in zip(category_sizes, sizes, strict=True)
        )
        widths = [num_numbers + sum(sizes), *[config.width] * config.layers]
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(before, after), nn.ReLU(), nn.Dropout(config.dropout))
            for before, after in itertools.pairwise(widths)
        )
        self.output = nn.Linear(widths[-1], num_outputs)

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        """Map numbers of shape (batch, numbers) and category indices of shape (batch, columns) to outputs of shape
        (batch, outputs)."""
        embedded = [embed(categories[:, index]) for index, embed in enumerate(self.embeddings)]
        hidden = torch.cat([numbers, *embedded], dim=1)
        for layer in self.layers:
            hidden = layer(hidden)
        outputs: torch.Tensor = self.output(hidden)
        return outputs


def _embedding(number: int, size: int) -> nn.Embedding:
    """Build an embedding in which unknown categories begin with zeros, since training rows may have none."""
    made = nn.Embedding(number, size)
    nn.init.zeros_(made.weight.data[0])
    return made


def embedding_size(num_categories: int) -> int:
    """Return the default size of an embedding: the square root of the number of categories, rounded up, or
    ``LARGEST_EMBEDDING`` if that is less.

    >>> embedding_size(17)
    5
    """
    return min(LARGEST_EMBEDDING, -int(-(num_categories**0.5) // 1))
