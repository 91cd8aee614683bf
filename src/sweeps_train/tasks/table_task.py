"""Classification and regression of the rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from sweeps_train.config import ClassificationTask, RegressionTask, TableData, TableTask, TrainingConfig
from sweeps_train.data.sample_order import Batch
from sweeps_train.data.table_data import build_table_samples, table_samples
from sweeps_train.models.table import TableModel, build_table_model, load_table_model
from sweeps_train.models.weights import save_weights
from sweeps_train.tables.encoding import Amount
from sweeps_train.tables.metrics import classification_metrics, regression_metrics
from sweeps_train.tasks.task import TaskOfRows

LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "squared": functional.mse_loss,
    "absolute": functional.l1_loss,
    "huber": functional.huber_loss,
}


class TableTraining(TaskOfRows):
    """A model for the rows of a table; the unit of the loss is a row.

    Batches have ``numbers`` of shape (samples, numbers), ``categories`` of shape (samples, columns), and ``targets`` of
    shape (samples,); outputs have shape (samples, classes), or (samples, 1) for numbers.
    """

    scores_each_sample = True
    repeats_its_passes = True

    def __init__(self, config: TrainingConfig, weights: Path | None):
        assert isinstance(config.data, TableData) and isinstance(config.model, TableModel)
        assert isinstance(config.task, TableTask)
        data, goal = config.data, config.task.kind
        self.encoding, self.train_samples, self.eval_samples = table_samples(data, goal)
        if weights is None:
            self.model = build_table_model(config.model, self.encoding)
        else:
            loaded = load_table_model(config.model, weights)
            self.model = loaded.model
            if loaded.encoding != self.encoding:  # the table has changed: inputs keep the meaning that they had
                self.encoding, self.train_samples, self.eval_samples = build_table_samples(data, goal, loaded.encoding)
        self.num_scores = self.encoding.num_outputs

    def logits(self, model: Callable[..., Any], batch: Batch) -> torch.Tensor:
        logits: torch.Tensor = model(batch["numbers"], batch["categories"])
        return logits

    def save(self, folder: Path, weights: Mapping[str, torch.Tensor] | None) -> None:
        save_weights(self.model, folder, weights)
        self.encoding.save(folder)


class Classification(TableTraining):
    """Classification of the rows of a table by cross-entropy."""

    def __init__(self, config: TrainingConfig, weights: Path | None):
        super().__init__(config, weights)
        assert isinstance(config.task, ClassificationTask)
        self._weights = self._class_weights() if config.task.class_weight == "balanced" else None
        self._positive = self.encoding.positive_index(config.task.positive_class)

    def _class_weights(self) -> torch.Tensor:
        """Return weights that make all classes count the same, with mean 1 over the training rows."""
        counts = torch.bincount(self.train_samples.targets, minlength=self.num_scores).clamp(min=1)
        return counts.sum() / (self.num_scores * counts)

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        weights = None if self._weights is None else self._weights.to(logits.device)
        return functional.cross_entropy(logits.float(), batch["targets"], weight=weights, reduction="sum")

    def score(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        return logits.double().softmax(dim=1)

    def metrics(self, scores: torch.Tensor, units: int) -> dict[str, float]:
        weights = None if self._weights is None else self._weights.double().numpy()
        return classification_metrics(scores.numpy(), self.eval_samples.targets.numpy(), weights, self._positive)


class Regression(TableTraining):
    """Regression on the rows of a table; the loss is in standard deviations of the target."""

    def __init__(self, config: TrainingConfig, weights: Path | None):
        super().__init__(config, weights)
        assert isinstance(config.task, RegressionTask) and isinstance(self.encoding.output, Amount)
        self._loss, self._output = config.task.loss, self.encoding.output

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        return LOSSES[self._loss](logits.float()[:, 0], batch["targets"], reduction="sum")

    def score(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        return logits.double()

    def metrics(self, scores: torch.Tensor, units: int) -> dict[str, float]:
        mean, scale = self._output.mean, self._output.scale
        values = self.eval_samples.targets.double().numpy() * scale + mean
        return regression_metrics(np.asarray(scores[:, 0]) * scale + mean, values, scale, self._loss)
