"""The micro batch: how many samples fit into a device's memory at once. Found without running out of it, and cached."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import torch
from filelock import FileLock

from sweeps_train.atomic_write import atomic_write
from sweeps_train.config import CausalLM, TextData, TrainingConfig
from sweeps_train.data.array_cache import cache_folder
from sweeps_train.data.sampler import Batch
from sweeps_train.probe_step import restored_state
from sweeps_train.strategies import Strategy
from sweeps_train.strategies.strategy import on_device

GIB = 2**30
USABLE_MEMORY = 0.9
"""Part of the memory that is planned with: allocators fragment, and kernels need workspace."""
_SAMPLES_SEARCHED = 256
"""Number of samples among which the longest ones are tried."""


def split_batches(batches: Sequence[Batch], size: int) -> list[Batch]:
    """The same samples in micro batches of at most ``size``.

    >>> [len(batch["labels"]) for batch in split_batches([{"labels": torch.arange(5)}], 2)]
    [2, 2, 1]
    """
    if all(num_rows(batch) <= size for batch in batches):
        return list(batches)
    return [
        {name: tensor[start : start + size] for name, tensor in batch.items()}
        for batch in batches
        for start in range(0, num_rows(batch), size)
    ]


def num_rows(batch: Batch) -> int:
    """Number of samples in a batch."""
    return len(next(iter(batch.values())))


def largest_divisor(share: int, most: float) -> int:
    """The largest micro batch of at most ``most`` samples that divides a worker's share; 1 if none does.

    >>> largest_divisor(12, most=7)
    6
    """
    return max(size for size in range(1, share + 1) if share % size == 0 and (size <= most or size == 1))


def choose_micro_batch_size(config: TrainingConfig, strategy: Strategy, configured: int, most: int | None) -> int:
    """Samples per forward pass with which a training begins. Every worker must call it.

    Args:
        config: The training; ``train.micro_batch_size=auto`` searches for the largest size that fits.
        strategy: Holds the model and its data.
        configured: The size that the config gives.
        most: Size that an earlier attempt was halved to, if it was.
    """
    workers, size = strategy.workers, configured
    if config.train.micro_batch_size == "auto":
        size = find_micro_batch_size(config, strategy, config.train.global_batch_size // strategy.data_parallel.size)
    elif workers.device.type == "cuda":  # CPUs never report that they are out of memory
        known = workers.broadcast(recall(config, strategy))
        if known is not None and known < size:
            size = largest_divisor(size, known)
    return size if most is None else largest_divisor(size, most)


def find_micro_batch_size(config: TrainingConfig, strategy: Strategy, share: int) -> int:
    """The largest micro batch that fits into the memory of every worker's device. Every worker must call it.

    Every sample adds the same amount of activations, so the memory for one and for two samples gives that for any
    number, and nothing runs out of memory. The result is cached on disk for all trainings of such a model on such a
    device.

    Args:
        config: The training.
        strategy: Holds the model and its data.
        share: A worker's samples of the global batch.
    """
    workers = strategy.workers
    size = workers.broadcast(recall(config, strategy)) if share > 1 else 1
    if size is None:
        samples = strategy.task.train_samples
        searched = range(min(len(samples), _SAMPLES_SEARCHED))
        longest = sorted(searched, key=lambda index: samples.size([index]))[-2:]
        one, two = (_memory(strategy, samples.batch(longest[-count:])) for count in (1, 2))
        most = (_memory_limit(config, strategy) - one) // max(two - one, 1) + 1
        size = min(workers.gather(int(most)), default=0)
        size = max(1, workers.broadcast(size))
        if workers.rank == 0:
            remember(config, strategy, size)
    return largest_divisor(share, size)


def _memory(strategy: Strategy, batch: Batch) -> int:
    """Peak memory in bytes of a step with one micro batch; the training's state is restored."""
    device = strategy.workers.device
    batch = on_device(batch, device)
    model = strategy.task.model
    trained = list(strategy.parameters.values())
    moments = 2 * sum(_bytes(each) for each in trained)  # of Adam; allocated at the end of the first step
    with restored_state(strategy):
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            strategy.backward([batch], 1.0)
            needed = torch.cuda.max_memory_allocated(device)
        else:
            saved: dict[int, int] = {}

            def save(tensor: torch.Tensor) -> torch.Tensor:
                storage = _local(tensor).untyped_storage()
                saved[storage.data_ptr()] = storage.nbytes()
                return tensor

            own = {_local(each).untyped_storage().data_ptr() for each in model.parameters()}
            with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
                strategy.backward([batch], 1.0)
            weights = sum(_bytes(each) for each in model.parameters()) + sum(_bytes(each) for each in trained)
            needed = weights + sum(size for address, size in saved.items() if address not in own)
    return needed + moments


def _local(tensor: torch.Tensor) -> torch.Tensor:
    local: Any = tensor.to_local() if hasattr(tensor, "to_local") else tensor  # the shard of a DTensor
    arrived: torch.Tensor = local.wait() if hasattr(local, "wait") else local  # a collective may still be running
    return arrived


def _bytes(tensor: torch.Tensor) -> int:
    local = _local(tensor)
    return local.numel() * local.element_size()


def _memory_limit(config: TrainingConfig, strategy: Strategy) -> int:
    """Bytes that a worker may plan with."""
    configured, device = config.train.memory_limit_gib, strategy.workers.device
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        available = free + torch.cuda.memory_reserved(device)
    else:
        available = psutil.virtual_memory().available // int(os.environ.get("LOCAL_WORLD_SIZE", strategy.workers.size))
    return int(USABLE_MEMORY * (available if configured is None else min(available, configured * GIB)))


# --- cache ---------------------------------------------------------------------------------------------------


def recall(config: TrainingConfig, strategy: Strategy) -> int | None:
    """The cached micro batch size of such a model on such a device, found or halved to; None if there is none."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        found: int | None = json.loads(_file().read_text(encoding="utf-8")).get(_key(config, strategy))
        return found
    return None


def remember(config: TrainingConfig, strategy: Strategy, size: int) -> None:
    """Cache a micro batch size; without a writable cache it is found anew every time."""
    with contextlib.suppress(OSError, RuntimeError, NotImplementedError):
        file = _file()
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_suffix(".lock")):
            known: dict[str, int] = {}
            with contextlib.suppress(OSError, ValueError):
                known = json.loads(file.read_text(encoding="utf-8"))
            with atomic_write(file) as temporary:
                content = {**known, _key(config, strategy): size}
                temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _file() -> Path:
    return cache_folder() / "micro_batch_sizes.json"


def _key(config: TrainingConfig, strategy: Strategy) -> str:
    """Cache key: device and task for a reader, and a hash of everything that memory depends on."""
    device = strategy.workers.device
    kind, size = "cpu", 0
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        kind, size = properties.name, properties.total_memory
    task, model = strategy.task, config.model
    shapes = sorted((tuple(each.shape), str(each.dtype), each.requires_grad) for each in task.model.parameters())
    data = config.data
    sample = [tuple(each.shape) for _, each in sorted(task.train_samples.batch([0]).items())]
    dependencies: dict[str, Any] = {
        "model": type(task.model).__qualname__,
        "of activations": (model.attention, model.gradient_checkpointing) if isinstance(model, CausalLM) else None,
        "shapes": hashlib.sha256(repr(shapes).encode()).hexdigest(),
        "sample": data.sequence_length if isinstance(data, TextData) else sample,
        "precision": config.train.precision,
        "strategy": dataclasses.asdict(config.strategy),
        "workers": strategy.workers.size,
        "device": size,
        "limit": config.train.memory_limit_gib,
    }
    digest = hashlib.sha256(json.dumps(dependencies, sort_keys=True).encode()).hexdigest()[:16]
    return f"{kind} {config.task.kind} {digest}"
