"""Checks of a sweep's pools, and of the metrics that report a trial's cost."""

from __future__ import annotations

from collections.abc import Iterator

from sweeps.config import SweepConfig
from sweeps.constants import COST, GPU_HOURS
from sweeps.storage.location import is_remote
from sweeps_train.config import EstimatorTask


def cost_metrics(config: SweepConfig) -> list[str]:
    """Return the metrics that workers report about a trial's cost."""
    return [*([COST] if config.is_priced else []), *([GPU_HOURS] if config.is_priced or config.scaling.pools else [])]


def pool_mistakes(config: SweepConfig) -> Iterator[str]:
    """Yield one line for each mistake, with key, value and fix."""
    search = config.search
    if config.scaling.pools and search.must_pause:
        yield (
            f"scaling.pools ({', '.join(config.scaling.pools)}): search.scheduler.kind={search.scheduler.kind} pauses "
            "trials and continues them wherever there is room, so it knows no pools; use search/scheduler=asha "
            "or none, or remove scaling.pools"
        )
    yield from _evaluation_mistakes(config)
    named = {f"search.metric={metric}": metric for metric in search.metrics}
    named |= {f"search.limits.{metric}": metric for metric in search.limits}
    for key, metric in named.items():
        if metric == COST and not config.is_priced:
            yield (f"{key}: needs prices; give scaling.pools.NAME.per_gpu_hour or per_cpu_hour, or search.stop.cost's")
        if metric == GPU_HOURS and metric not in cost_metrics(config):
            yield f"{key}: is reported with scaling.pools or prices (search.stop.cost); give one of them"


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
