"""Image classification."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from sweeps_train.config import CustomData, CustomModel, DigitsData, TrainingConfig
from sweeps_train.data.images import IGNORED_LABEL, ImageSamples, build_image_samples, image_shape
from sweeps_train.data.sample_order import Batch
from sweeps_train.models.image import (
    ImageModel,
    build_image_model,
    load_image_model,
    load_image_shape,
    save_image_model,
)
from sweeps_train.steps.random_state import seed_all
from sweeps_train.tasks.task import TaskOfRows
from sweeps_train.workers.worker_cache import cached


class ImageClassification(TaskOfRows):
    """Image classification by cross-entropy; the unit of the loss is an image. Held-out images with the label -100,
    which ``cross_entropy`` ignores, do not count.

    Batches have ``inputs`` of shape (samples, channels, height, width), or of the data set's own shape after the first
    dimension, and ``labels`` of shape (samples,); logits have shape (samples, classes).
    """

    num_scores = 3  # loss, number of correct answers, and of labels that are not ignored
    scores_each_sample = False

    def __init__(self, config: TrainingConfig, weights: Path | None):
        assert isinstance(config.model, ImageModel) and isinstance(config.data, DigitsData | CustomData)
        data = config.data
        self.train_samples, self.eval_samples = cached("images", data, lambda: build_both_samples(data))
        self.repeats_its_passes = not isinstance(config.model, CustomModel)
        if weights is not None:  # counting the classes of the data may take minutes
            self._shape = load_image_shape(weights)
        else:  # a user's own model may take other inputs than images
            self._shape = None if isinstance(config.model, CustomModel) else image_shape(self.train_samples)
        seed_all(config.seed)  # reading the data may have drawn random numbers; taking it from the cache does not
        self.model = (
            build_image_model(config.model, self._shape) if weights is None else load_image_model(config.model, weights)
        )

    def logits(self, model: Callable[..., Any], batch: Batch) -> torch.Tensor:
        logits: torch.Tensor = model(batch["inputs"])
        return logits

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        return functional.cross_entropy(logits.float(), batch["labels"], reduction="sum")

    def score(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        labels = batch["labels"]
        correct, counted = (logits.argmax(dim=-1) == labels).sum(), (labels != IGNORED_LABEL).sum()
        return torch.stack([self.loss(logits, batch), correct, counted])

    def metrics(self, scores: torch.Tensor, units: int) -> dict[str, float]:
        loss, correct, counted = scores.tolist()
        if not counted:
            raise ValueError(
                f"data: all held-out labels are {IGNORED_LABEL}, which the loss ignores; give some held-out samples a "
                "class"
            )
        return {"eval/loss": loss / counted, "eval/accuracy": correct / counted}

    def save(self, folder: Path, weights: Mapping[str, torch.Tensor] | None) -> None:
        save_image_model(self.model, self._shape, folder, weights)


def build_both_samples(data: DigitsData | CustomData) -> tuple[ImageSamples, ImageSamples]:
    """Return training and held-out samples, equal for every training seed, so that trials are compared on the same
    held-out samples even if a user's code draws them at random."""
    seed_all(0)
    return build_image_samples(data)
