"""Evaluation of a checkpoint by a process that does not train it, on any device."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from sweeps_train.checkpoints.checkpoint import read_training_config
from sweeps_train.checkpoints.training_state import load_trained_weights
from sweeps_train.devices.numerics import numerics
from sweeps_train.models.float8 import convert_to_float8, multiplies_float8
from sweeps_train.steps.precision import Precision
from sweeps_train.strategies.strategy import Capabilities, Strategy
from sweeps_train.tasks import build_task
from sweeps_train.workers.distributed import Workers

SAMPLES_AT_ONCE = 32
"""Samples per forward pass if the config does not set a micro batch size."""


def evaluate_checkpoint(folder: Path) -> dict[str, float]:
    """Compute the metrics over the held-out samples of a training, from a checkpoint of a built-in task that any
    strategy and number of workers have written.

    Returns:
        The metrics ``eval/*`` that the training would have reported at this step; those of another kind of device may
        differ in their last digits, and more if it cannot multiply the 8-bit numbers of ``train.precision=fp8``.

    Raises:
        ValueError: The folder is not a checkpoint of a built-in task, or its data or model cannot be loaded.
    """
    config = read_training_config(folder)
    with numerics(config.train):
        workers = Workers.current()
        alone = Capabilities(random_stream=0, can_retry_oom=True)
        strategy = Strategy(workers, Precision(config.train.precision, workers.device), alone)
        task = build_task(config, folder)
        if config.train.precision == "fp8" and multiplies_float8(workers.device):
            convert_to_float8(task.model)
        with closing(task):
            strategy.parallelize(task)
            load_trained_weights(folder, strategy)
            size, samples = config.train.micro_batch_size, task.eval_samples
            scores = strategy.evaluate(samples, size if isinstance(size, int) else SAMPLES_AT_ONCE)
            return task.metrics(scores.cpu(), samples.units(range(len(samples))))
