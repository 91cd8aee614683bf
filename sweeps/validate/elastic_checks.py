"""Checks elastic trials: a range of numbers of workers that fits the task, the strategy and the space."""

from __future__ import annotations

from sweeps.config import SweepConfig
from sweeps.config.scaling import WorkerRange
from sweeps.errors import ConfigError
from sweeps.validate.strategy_checks import check_strategy
from sweeps_train.config.command import CommandTask
from sweeps_train.config.estimator import EstimatorTask
from sweeps_train.config.strategy import DDP, FSDP, FSDPTensorParallel


def check_elastic(config: SweepConfig) -> None:
    """Check that trials of this config can change their number of workers while they train.

    Raises:
        ConfigError: The number of workers is a range, and trials like these cannot change it.
    """
    workers = config.scaling.num_workers
    if not isinstance(workers, WorkerRange):
        return
    given = f"scaling.num_workers={{min: {workers.min}, max: {workers.max}}}"
    if isinstance(config.task, CommandTask | EstimatorTask):
        raise ConfigError(
            f"{given}: the number of workers can change only with built-in tasks and functions, not with "
            f"task.kind={config.task.kind}; give one number"
        )
    searched = [path for path in config.space if path.split(".")[0] == "scaling"]
    if searched:
        raise ConfigError(f"space.{searched[0]}: the sweep decides on the workers of trials with {given}; remove one")
    if config.loop is None or config.strategy is None:  # a function divides its batches itself
        return
    _check_group(config, given)
    larger = [number for number in config.worker_numbers() if number > workers.min]
    if not larger:
        train = config.train
        assert train is not None
        micro = f" and train.micro_batch_size={train.micro_batch_size}" if train.micro_batch_size is not None else ""
        raise ConfigError(
            f"{given}: no number from {workers.min + 1} to {workers.max} divides "
            f"train.global_batch_size={train.global_batch_size}{micro} for strategy.kind={config.strategy.kind}; "
            f"use a multiple of {2 * workers.min}, raise max, or give scaling.num_workers={workers.min}"
        )
    for number in larger:
        check_strategy(config.with_workers(number))


def _check_group(config: SweepConfig, given: str) -> None:
    """Check that a change of the number of workers changes neither the group that holds one model nor the work of each
    step."""
    strategy = config.strategy
    if isinstance(strategy, DDP):
        if strategy.compression == "powersgd":
            raise ConfigError(
                f"strategy.compression=powersgd: each worker keeps the error of its own gradients, which {given} would "
                "lose; use fp16, bf16 or none, or one number"
            )
        return
    if isinstance(strategy, FSDP):
        return
    key = "stages" if hasattr(strategy, "stages") else "size"
    fixed = isinstance(strategy, FSDPTensorParallel) or getattr(strategy, key) is not None
    if not fixed:
        assert strategy is not None
        raise ConfigError(
            f"strategy.{key}: strategy.kind={strategy.kind} divides the model over all workers, whose number {given} "
            f"changes; set strategy.{key} to the workers of one model, such as "
            f"{config.scaling.min_workers}, or give one number"
        )
