"""Gradient accumulation: splits a step into micro batches and scales their losses, so that their gradients add up to
the gradient of the global batch. ``config.gradient_accumulation`` checks the number of micro batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sweeps_train.data.sample_order import Batch


def loss_scale(units: int | torch.Tensor, replicas: int) -> float | torch.Tensor:
    """Return the factor of each micro batch's summed loss. The gradients of micro batches are added, and those of
    replicas averaged, whereas the loss is the mean over the units (counted tokens, or samples) of the global batch."""
    return replicas / units


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
