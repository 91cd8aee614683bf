"""What a task is to the training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import nn

from sweeps_train.data.sampler import Batch, Samples


class Task(Protocol):
    """A model, its data, and what is measured."""

    @property
    def model(self) -> nn.Module:
        """The model to train, bare."""

    @property
    def frozen(self) -> Sequence[str]:
        """Names of parameters that are not trained, and that every worker has read from the same files."""

    @property
    def train_samples(self) -> Samples:
        """What is learned from."""

    @property
    def eval_samples(self) -> Samples:
        """What is held out."""

    @property
    def unit(self) -> Literal["samples", "tokens"]:
        """What ``Samples.size`` counts, and speed is measured in."""

    @property
    def num_scores(self) -> int:
        """Length of what ``score`` returns."""

    def padded(self, batch: Batch, multiple: int | None = None) -> Batch:
        """The batch in a shape that all batches of as many samples have, or with sequences that ``multiple`` divides;
        what is added counts for nothing."""

    def logits(self, model: Callable[..., Any], batch: Batch) -> torch.Tensor:
        """What the model makes of a batch; ``model`` may be wrapped, or a part of it."""

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The loss of a batch, summed over its units; a scalar."""

    def score(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Sums over a held-out batch, shape (``num_scores``,), from which ``metrics`` follow."""

    def metrics(self, scores: Sequence[float], units: int) -> dict[str, float]:
        """``eval/*`` from the scores of all held-out batches and the number of their units."""

    def save(self, folder: Path, weights: Mapping[str, torch.Tensor] | None) -> None:
        """Writes the model's weights, and what belongs to them.

        Args:
            folder: Is there already.
            weights: The trained parameters and the buffers by name, where the model has only parts of them.
        """

    def close(self) -> None:
        """The training is over: puts back what the next one shares."""
