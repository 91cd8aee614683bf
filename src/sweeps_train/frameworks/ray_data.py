"""Ray Data sets of a trial: made on its first worker, and read by all workers with ``ray.train.get_dataset_shard``.

Ray Train gives datasets to the workers of one ``TorchTrainer``, once. Workers here may train one trial after another,
each with datasets of its own, so every trial makes and splits them again, with Ray's public ``DataConfig``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import ray.train
import torch.distributed
from ray.train.collective import barrier, broadcast_from_rank_zero

from sweeps_train.compat.ray_data import end_split
from sweeps_train.config import FunctionTask
from sweeps_train.targets import call_target
from sweeps_train.workers.worker_cache import cached

if TYPE_CHECKING:
    from ray.data import DataIterator, Dataset


@contextmanager
def trial_shards(task: FunctionTask | None) -> Iterator[Mapping[str, DataIterator]]:
    """Make and split the datasets of a trial, and yield this worker's shards by the name of the dataset, to be read in
    the ``with`` block. All workers of the group must call it.

    Raises:
        ValueError: A dataset cannot be made.
        TypeError: A function does not return a dataset.
    """
    if task is None or not task.datasets:
        yield {}
        return
    rank = ray.train.get_context().get_world_rank()
    nodes = _node_ids()
    shards = broadcast_from_rank_zero(_split(task, nodes) if rank == 0 else None)[rank]
    yield shards
    barrier()  # no worker is reading any more
    if rank == 0:
        for shard in shards.values():
            end_split(shard)


def make_datasets(task: FunctionTask) -> dict[str, Dataset]:
    """Call the functions that make a task's datasets; return the datasets by name. Equal calls are made only once and
    share the result.

    Raises:
        ValueError: A function cannot be called, or returns several datasets but not the requested one.
        TypeError: A function returns something else.
    """
    from ray.data import DataContext, Dataset, ExecutionResources

    context = DataContext.get_current()
    context.enable_progress_bars = False  # they would fill the trial's log
    # The limit also holds for work that a function does immediately, such as a random split, so that it takes no CPUs
    # of other trials.
    context.execution_options.resource_limits = ExecutionResources.for_limits(cpu=task.data_cpus)
    results: list[tuple[tuple[str, dict[str, Any]], Any]] = []
    datasets: dict[str, Dataset] = {}
    for name, each in task.datasets.items():
        call, key = (each.target, each.arguments), f"task.datasets.{name}"
        result = next((known for other, known in results if other == call), None)
        if result is None:
            result = call_target(key, each.target, each.arguments)
            results.append((call, result))
        dataset = result.get(name) if isinstance(result, Mapping) else result
        if isinstance(result, Mapping) and name not in result:
            raise ValueError(f"{key}._target_={each.target} returned the datasets {sorted(result)}, but not {name!r}")
        if not isinstance(dataset, Dataset):
            raise TypeError(
                f"{key}._target_={each.target} returned a {type(dataset).__name__}; return a ray.data.Dataset, such as "
                "ray.data.read_parquet(...), or several by name in a mapping"
            )
        datasets[name] = dataset
    return datasets


def _split(task: FunctionTask, nodes: list[str]) -> list[dict[str, DataIterator]]:
    """Make the datasets, and return the shards of each rank, given Ray's node id of each. Nothing is computed before a
    worker reads."""
    from ray.train import DataConfig

    config = task.dataset_config
    made = cached("ray data", (task.datasets, task.data_cpus), lambda: make_datasets(task))
    options = DataConfig.default_ingest_options()
    options.preserve_order = config.preserve_order
    split: list[dict[str, DataIterator]] = DataConfig(
        datasets_to_split=config.datasets_to_split,
        execution_options=options,
        enable_shard_locality=config.enable_shard_locality,
    ).configure(dict(made), world_size=len(nodes), worker_handles=None, worker_node_ids=nodes)
    return split


def _node_ids() -> list[str]:
    """Return Ray's node id of each rank."""
    own = ray.get_runtime_context().get_node_id()
    if not torch.distributed.is_initialized():
        return [own]
    nodes: list[str] = [""] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(nodes, own)
    return nodes
