"""Gradient accumulation: splits a step into micro batches, whose gradients add up to the gradient of the global batch.
``config.gradient_accumulation`` checks their number."""

from __future__ import annotations

from collections.abc import Sequence

from sweeps_train.data.sample_order import Batch


def split_batches(batches: Sequence[Batch], size: int) -> list[Batch]:
    """Split samples into micro batches of up to ``size``.

    >>> import torch
    >>> [len(batch["labels"]) for batch in split_batches([{"labels": torch.arange(5)}], 2)]
    [2, 2, 1]
    """
    if all(num_rows(batch) <= size for batch in batches):
        return list(batches)
    return [
        {name: tensor[start : start + size] for name, tensor in batch.items()}
        for batch in batches
        for start in range(0, num_rows(batch), size)
    ]


def num_rows(batch: Batch) -> int:
    """Return the number of samples in a batch."""
    return len(next(iter(batch.values())))
