"""Tasks: a model, its data, and the metrics that a trial reports. Begin reading at ``task.py``."""

from __future__ import annotations

from pathlib import Path

from sweeps_train.config import TableTask, TrainingConfig
from sweeps_train.tasks.task import Task

__all__ = ["Task", "build_task"]


def build_task(config: TrainingConfig, weights: Path | None = None) -> Task:
    """Build model and data, with weights from the folder of a checkpoint, or else the pretrained or initial ones. Each
    task imports its own libraries, since transformers alone takes seconds.

    Raises:
        ValueError: Something in ``config.model`` or ``config.data`` cannot work; the message names it.
    """
    if config.task.kind == "causal_lm":
        from sweeps_train.tasks.causal_lm import CausalLMTraining

        return CausalLMTraining(config, weights)
    if isinstance(config.task, TableTask):
        from sweeps_train.tasks.table_task import Classification, Regression

        return Classification(config, weights) if config.task.kind == "classification" else Regression(config, weights)
    from sweeps_train.tasks.image_classification import ImageClassification

    return ImageClassification(config, weights)
