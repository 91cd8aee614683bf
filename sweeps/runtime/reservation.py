"""Resources that are reserved for a trial's workers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sweeps.config import SweepConfig
from sweeps.config.scaling import Scaling
from sweeps.runtime.node_resources import Resources, accelerator
from sweeps_train.config import FunctionTask

MOST_CPUS_PER_GPU = 8
"""Maximum useful CPUs for a worker with a GPU, which read and tokenize data, and launch kernels."""


def data_cpus_of(config: SweepConfig) -> float:
    """Return the CPUs that Ray Data needs for a trial in addition to its workers."""
    return config.task.data_cpus if isinstance(config.task, FunctionTask) else 0.0


def cpus_beside_a_gpu(nodes: Sequence[Resources]) -> float:
    """Return the CPUs to reserve for each GPU of the cluster, from 1 to ``MOST_CPUS_PER_GPU``, so that all GPUs can be
    used and one CPU per node stays free, for instance for a job's driver.

    Example:
        >>> cpus_beside_a_gpu([{"CPU": 96.0, "GPU": 8.0}, {"CPU": 16.0, "GPU": 4.0}, {"CPU": 2.0}])
        3.75
    """
    shares = [(node.get("CPU", 0.0) - 1) / node["GPU"] for node in nodes if node.get("GPU", 0) > 0]
    return min(max(1.0, min(shares, default=1.0)), float(MOST_CPUS_PER_GPU))


def reserved_per_worker(scaling: Scaling, *, use_gpu: bool, cpus_per_gpu: float = 1.0) -> dict[str, float]:
    """Return the resources that Ray reserves for one worker.

    Args:
        scaling: Workers of a trial.
        use_gpu: Whether each worker has one GPU unless its resources say otherwise.
        cpus_per_gpu: CPUs for each GPU of a worker, unless its resources say otherwise.
    """
    kind = scaling.accelerator_type
    of_kind = {accelerator(kind): 0.001} if kind else {}  # the amount that Ray Train asks for
    gpus = scaling.resources_per_worker.get("GPU", 1.0) if use_gpu else 0.0
    cpus = max(1.0, math.floor(gpus * cpus_per_gpu))
    return {"CPU": cpus, **({"GPU": 1.0} if use_gpu else {}), **of_kind, **scaling.resources_per_worker}


def reserved_per_trial(config: SweepConfig, *, use_gpu: bool, cpus_per_gpu: float = 1.0) -> dict[str, float]:
    """Return the resources that are reserved for all workers of a trial and for its datasets; for trials that share
    workers, each trial's part.

    Args:
        config: Config of the trial.
        use_gpu: Whether its workers use GPUs.
        cpus_per_gpu: CPUs for each GPU of a worker, unless its resources say otherwise.
    """
    per_worker = reserved_per_worker(config.scaling.placed, use_gpu=use_gpu, cpus_per_gpu=cpus_per_gpu)
    shared_by = 1 if config.scaling.trials_per_group == "auto" else config.scaling.trials_per_group
    workers = config.scaling.min_workers / shared_by
    needs = {name: amount * workers for name, amount in per_worker.items()}
    return {**needs, "CPU": needs["CPU"] + data_cpus_of(config)}


def memory_share(per_worker: Resources, workers_per_node: int, *, use_gpu: bool) -> float:
    """Return the part of its GPU's memory that a worker may use; without a GPU, of its node's memory.

    Args:
        per_worker: Resources of each worker.
        workers_per_node: Largest number of workers that run on one node at a time.
        use_gpu: Whether each worker has one GPU unless its resources say otherwise.

    Example:
        >>> memory_share({"GPU": 0.5}, workers_per_node=4, use_gpu=True)
        0.5
    """
    gpus = per_worker.get("GPU", 1.0) if use_gpu else 0.0
    return min(gpus, 1.0) if gpus else 1 / workers_per_node
