"""Rows of a table as samples of the training loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sweeps_train.config import TableData
from sweeps_train.data.sample_order import Batch
from sweeps_train.tables.encoding import Amount, Features, Goal, TableEncoding, learn_encoding
from sweeps_train.tables.split import read_split
from sweeps_train.workers.worker_cache import cached


class TableSamples:
    """Encoded rows in memory; each row is one unit of the loss."""

    def __init__(self, numbers: torch.Tensor, categories: torch.Tensor, targets: torch.Tensor):
        """
        Args:
            numbers: Float32 of shape (rows, numbers), scaled and without gaps.
            categories: Int64 of shape (rows, columns), 0 for unknown ones.
            targets: Int64 classes, or float32 numbers in standard deviations from the mean; of shape (rows,).
        """
        self.numbers, self.categories, self.targets = numbers, categories, targets

    def __len__(self) -> int:
        return len(self.targets)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Stack rows: ``numbers``, ``categories`` and ``targets``, each of shape (batch, ...)."""
        index = torch.tensor(indices)
        return {
            "numbers": self.numbers.index_select(0, index),
            "categories": self.categories.index_select(0, index),
            "targets": self.targets.index_select(0, index),
        }

    def units(self, indices: Sequence[int]) -> int:
        return len(indices)

    def size(self, indices: Sequence[int]) -> int:
        return len(indices)


def table_samples(config: TableData, goal: Goal) -> tuple[TableEncoding, TableSamples, TableSamples]:
    """Return the result of ``build_table_samples``, cached for all trials of a long-lived worker."""
    return cached("table", (config, goal), lambda: build_table_samples(config, goal))


def build_table_samples(
    config: TableData, goal: Goal, encoding: TableEncoding | None = None
) -> tuple[TableEncoding, TableSamples, TableSamples]:
    """Read a table, and encode training and held-out rows, by the encoding of a trained model or by one that is learned
    from the training rows.

    Raises:
        ValueError: The table cannot be read or learned from; the message names the key and the fix.
    """
    train, held_out = read_split(config, goal)
    known = learn_encoding(config, goal, train) if encoding is None else encoding

    def samples(table: Any, where: str) -> TableSamples:
        features = known.encode(table)
        targets = torch.tensor(known.targets(table, where))  # a copy: Arrow's memory is read-only
        if isinstance(known.output, Amount):
            targets = ((targets - known.output.mean) / known.output.scale).float()
        return TableSamples(*inputs(known, features), targets)

    return known, samples(train, "training"), samples(held_out, "held-out")


def inputs(encoding: TableEncoding, features: Features) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the inputs of a model: imputed and scaled numbers, and category indices."""
    return torch.from_numpy(encoding.matrix(features.numbers)), torch.from_numpy(features.categories)
