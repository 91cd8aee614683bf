"""The interface of a task to the training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol

import torch
from torch import nn

from sweeps_train.data.sample_order import Batch, Samples


class Task(Protocol):
    """A model to train, its data, and its metrics."""

    @property
    def model(self) -> nn.Module:
        """The model to train, without wrappers."""

    @property
    def frozen(self) -> Sequence[str]:
        """Names of parameters that are not trained, and equal on all workers because all read the same files."""

    @property
    def stored_types(self) -> Mapping[str, torch.dtype]:
        """Dtypes, by name, in which ``save`` writes weights that a strategy trains in float32."""

    @property
    def train_samples(self) -> Samples:
        """Training data."""

    @property
    def eval_samples(self) -> Samples:
        """Held-out data."""

    @property
    def unit(self) -> Literal["samples", "tokens"]:
        """Unit of ``Samples.size`` and of speed."""

    @property
    def num_scores(self) -> int:
        """Number of scores of a batch, or of each sample if ``scores_each_sample``."""

    @property
    def scores_each_sample(self) -> bool:
        """Whether metrics such as AUC need the scores of each sample instead of sums."""

    @property
    def repeats_its_passes(self) -> bool:
        """Whether passes run the same kernels for all batches of a shape, and draw random numbers only from the
        device."""

    def pad(self, batch: Batch, multiple: int | None = None) -> Batch:
        """Pad a batch; padding has no effect on the loss.

        Args:
            batch: Tensors of shape (samples, ...); (samples, tokens) for a language model.
            multiple: Pad sequences to a multiple of this length. By default, to the same shape for all batches with as
                many samples.
        """

    def logits(self, model: Callable[..., Any], batch: Batch) -> torch.Tensor:
        """Run the part of the model that ``loss`` and ``score`` need on a batch.

        Args:
            model: The task's model, possibly wrapped, or a stage of it.
            batch: Tensors of shape (samples, ...).

        Returns:
            Logits of shape (samples, classes), or (samples, tokens, vocabulary) for a language model; or hidden states
            of shape (samples, tokens, width), whose logits the loss computes in chunks.
        """

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the loss of a batch from its ``logits``, summed over its units: a scalar."""

    def score(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the scores of a held-out batch, from which ``metrics`` are computed: sums of shape (``num_scores``,),
        or of shape (samples, ``num_scores``) if each sample is scored."""

    def metrics(self, scores: torch.Tensor, units: int) -> dict[str, float]:
        """Compute the metrics ``eval/*``.

        Args:
            scores: Sums of ``score`` over all held-out batches, or the scores of all held-out samples in their order:
                float64, on the CPU.
            units: Number of units of the loss in these samples.
        """

    def save(self, folder: Path, weights: Mapping[str, torch.Tensor] | None) -> None:
        """Write the model's weights and the files that belong to them into an existing folder. Trained parameters and
        buffers are given by name if the model has only shards of them."""

    def close(self) -> None:
        """Restore process settings that the next training in this process shares."""


class TaskOfRows:
    """Defaults of the tasks whose samples all have one shape, and which share nothing with the next training."""

    unit: Literal["samples"] = "samples"
    frozen = ()
    stored_types: Mapping[str, torch.dtype] = MappingProxyType({})

    def pad(self, batch: Batch, multiple: int | None = None) -> Batch:
        return batch

    def close(self) -> None:
        pass
