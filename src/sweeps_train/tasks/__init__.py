"""Tasks: what a trial trains, and which metrics it reports."""

from __future__ import annotations

from pathlib import Path

from sweeps_train.config import TrainingConfig
from sweeps_train.tasks.task import Task

__all__ = ["Task", "build_task"]


def build_task(config: TrainingConfig, weights: Path | None = None) -> Task:
    """Builds model and data; each task imports its own libraries, since transformers alone costs seconds.

    Args:
        config: The training.
        weights: Folder of a checkpoint, to go on from its weights.

    Raises:
        ValueError: Something in ``config.model`` or ``config.data`` cannot work; the message names it.
    """
    if config.task.kind == "causal_lm":
        from sweeps_train.tasks.causal_lm import CausalLMTraining

        return CausalLMTraining(config, weights)
    from sweeps_train.tasks.image_classification import ImageClassification

    return ImageClassification(config, weights)
