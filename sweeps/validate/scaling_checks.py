"""Checks of the section ``scaling``: pools, a range of numbers of workers, and trials that share their workers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from sweeps.compose import Composition
from sweeps.compose.dotted import MISSING, find
from sweeps.config import SweepConfig
from sweeps.config.scaling import WorkerRange
from sweeps.constants import COST, GPU_HOURS
from sweeps.errors import ConfigError
from sweeps.space.space import Lookup, Space
from sweeps.storage.location import is_remote
from sweeps.texts.wording import value_text
from sweeps.validate.argument_checks import configs_of_trials
from sweeps.validate.strategy_checks import check_strategy
from sweeps_train.config import CommandTask, EstimatorTask, TrainingConfig
from sweeps_train.config.sharing import forbids_sharing
from sweeps_train.config.strategy import DDP, FSDP, FSDPTensorParallel

FIXES = {
    "task.kind": "only task=causal_lm can",
    "model.lora": "train adapters with model.lora.r",
    "model.lora.use_dora": "use false",
    "model.lora.modules_to_save": "remove it",
    "model.quantization": "use none",
    "model.trust_remote_code": "use false",
    "model.gradient_checkpointing": "use false, or model.lora.dropout=0",
    "strategy.kind": "use strategy=ddp or strategy=fsdp",
    "strategy.compression": "use none",
    "strategy.activation_checkpointing": "use false, or model.lora.dropout=0",
    "strategy.cpu_offload": "use false",
    "train.precision": "use bf16, fp32 or auto",
    "train.compile": "use false",
    "train.corruption_check_every": "remove it",
    "train.max_communication_share": "remove it",
}
"""Fix for each key whose value prevents even a single training from sharing its workers."""


def cost_metrics(config: SweepConfig) -> list[str]:
    """Return the metrics that workers report about a trial's cost."""
    return [*([COST] if config.is_priced else []), *([GPU_HOURS] if config.is_priced or config.scaling.pools else [])]


def pool_mistakes(config: SweepConfig) -> Iterator[str]:
    """Yield one line for each mistake about pools and the metrics of cost, with key, value and fix."""
    search = config.search
    if config.scaling.pools and search.must_pause:
        yield (
            f"scaling.pools ({', '.join(config.scaling.pools)}): search.scheduler.kind={search.scheduler.kind} pauses "
            "trials and continues them wherever there is room, so it does not support pools; use "
            "search/scheduler=auto, asha or none, or remove scaling.pools"
        )
    yield from _evaluation_mistakes(config)
    named = {f"search.metric={metric}": metric for metric in search.metrics}
    named |= {f"search.limits.{metric}": metric for metric in search.limits}
    if (first := search.metrics[0]) in (COST, GPU_HOURS) and not isinstance(config.task, CommandTask):
        yield (
            f"search.metric={first}: is no result of the training, by which workers choose the best checkpoint; name "
            f"one of those first, as in search.metric=[eval/loss,{first}] search.mode=[min,min]"
        )
    for key, metric in named.items():
        if metric == COST and not config.is_priced:
            yield (f"{key}: needs prices; give scaling.pools.NAME.per_gpu_hour or per_cpu_hour, or search.stop.cost's")
        if metric == GPU_HOURS and metric not in cost_metrics(config):
            yield f"{key}: is reported only with scaling.pools or prices (search.stop.cost); give one of them"


def _evaluation_mistakes(config: SweepConfig) -> Iterator[str]:
    pool = config.scaling.evaluation_pool
    if pool is None:
        return
    key = f"scaling.evaluation_pool={pool}"
    if config.loop is None or isinstance(config.task, EstimatorTask):
        yield f"{key}: task.kind={config.task.kind} evaluates by itself; remove it, or use a built-in task"
    if config.loop is not None and config.loop.on_divergence == "restore":
        yield f"{key}: train.on_divergence=restore needs evaluations by the trial's own workers; use stop, or remove it"
    if is_remote(config.output_dir):
        yield (
            f"{key}: output_dir={config.output_dir} is in an object store, and evaluations read checkpoints from a "
            "folder that all nodes share; use such a folder, or remove scaling.evaluation_pool"
        )


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
        raise ConfigError(f"space.{searched[0]}: with {given} the sweep decides on the workers of trials; remove one")
    train = config.loop
    if train is None or config.strategy is None:  # a function divides its batches itself
        return
    _check_group(config, given)
    larger = [number for number in config.worker_numbers() if number > workers.min]
    if not larger:
        micro = f" and train.micro_batch_size={train.micro_batch_size}" if train.micro_batch_size is not None else ""
        raise ConfigError(
            f"{given}: no number from {workers.min + 1} to {workers.max} divides "
            f"train.global_batch_size={train.global_batch_size}{micro} for strategy.kind={config.strategy.kind}; "
            f"use a multiple of {2 * workers.min}, raise max, or give scaling.num_workers={workers.min}"
        )
    for number in larger:
        check_strategy(config.with_workers(number))


def _check_group(config: SweepConfig, given: str) -> None:
    """Check that changing the number of workers changes neither the group of workers that holds one model, nor the work
    of each step."""
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


def check_lanes(config: SweepConfig) -> None:
    """Check that trials of this config can share their workers, if the config asks for it.

    Raises:
        ConfigError: The trials should share their workers and cannot, or the workers are to be measured without the
            number of trials that share them.
    """
    number = config.scaling.trials_per_group
    if config.scaling.measure_workers and number != "auto":
        raise ConfigError(
            f"scaling.measure_workers=true: needs scaling.trials_per_group=auto, not {number}; set it, or use "
            "scaling.measure_workers=false"
        )
    if number != 1 and (reason := why_alone(config)) is not None:
        raise ConfigError(f"scaling.trials_per_group={number}: {reason}, or use scaling.trials_per_group=1")


def why_alone(config: SweepConfig) -> str | None:
    """Return the reason why trials of this config cannot share their workers, with a fix; None if they can."""
    scheduler = f"search.scheduler.kind={config.search.scheduler.kind}"
    excluded = {
        "workers outlive trials; use scaling.isolation=warm": not config.warm,
        "the number of workers cannot change; give scaling.num_workers one number": config.scaling.is_elastic,
        "it cannot be combined with scaling.pools; remove the pools": bool(config.scaling.pools),
        f"{scheduler} makes trials wait for each other's copies; use another scheduler": config.search.copies_trials,
        f"output_dir={config.output_dir} must be a folder that all nodes share": is_remote(config.output_dir),
    }
    if (reason := next((text for text, holds in excluded.items() if holds), None)) is not None:
        return reason
    training = config.training()
    key = forbids_sharing([training]) if isinstance(training, TrainingConfig) else "task.kind"
    if key is None:
        return None
    value = find(config.as_document(), key)
    shown = "" if value is MISSING or isinstance(value, dict) else f"={value_text(value)}"
    return f"{key}{shown} keeps trials from sharing their workers; {FIXES.get(key, 'use another value')}"


def lane_mistakes(composition: Composition, space: Space, lookup: Lookup) -> Iterator[str]:
    """Yield one line for each reason why the trials of a space cannot share their workers, if the config asks for
    it."""
    number = composition.config.scaling.trials_per_group
    if number != 1:
        for reason in differences(composition, space, lookup):
            yield (
                f"{reason}, as they should with scaling.trials_per_group={number}; remove it from the space, or use "
                "scaling.trials_per_group=1"
            )


def differences(composition: Composition, space: Space, lookup: Lookup) -> Iterator[str]:
    """Yield the searched values that keep trials from sharing their workers because they differ."""
    cannot = "trials with different values cannot share their workers"
    for path in space:
        if path.partition(".")[0] == "scaling":
            yield f"space.{path}: {cannot}"
    own = composition.config.training()
    for point, config in configs_of_trials(composition, space, lookup, ("model", "data", "task", "strategy", "train")):
        training = config.training()
        if not (isinstance(own, TrainingConfig) and isinstance(training, TrainingConfig)):
            return  # `check_lanes` reports this
        if (key := forbids_sharing([own, training])) is not None and forbids_sharing([own]) is None:
            yield f"space.{max(point, key=lambda each: _common(each, key))}: {cannot}"
            return


def _common(path: str, key: str) -> int:
    """Return the number of leading parts that a path and a key have in common."""
    both = zip(path.replace("/", ".").split("."), key.split("."), strict=False)
    return len([*takewhile(lambda parts: parts[0] == parts[1], both)])
