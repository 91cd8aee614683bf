"""How many samples go through a model at once: what fits, found without trying what does not, and remembered."""

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

from sweeps_train.config import CausalLM, TextData, TrainingConfig
from sweeps_train.data.array_cache import cache_folder
from sweeps_train.data.sampler import Batch
from sweeps_train.probe_step import without_trace
from sweeps_train.strategies import Strategy
from sweeps_train.strategies.strategy import on_device

GIB = 2**30
SPARE = 0.9
"""Part of the memory that may be planned with: allocators waste some, and kernels need room of their own."""
_LOOKED_AT = 256
"""Samples among which the longest ones are tried."""


def cut(batches: Sequence[Batch], size: int) -> list[Batch]:
    """The same samples in micro batches of at most ``size``."""
    if all(rows(batch) <= size for batch in batches):
        return list(batches)
    return [
        {name: tensor[start : start + size] for name, tensor in batch.items()}
        for batch in batches
        for start in range(0, rows(batch), size)
    ]


def rows(batch: Batch) -> int:
    return len(next(iter(batch.values())))


def largest_divisor(share: int, most: float) -> int:
    """The largest micro batch of at most ``most`` samples that divides a worker's share; 1 if none does."""
    return max(size for size in range(1, share + 1) if share % size == 0 and (size <= most or size == 1))


def find_micro_batch_size(config: TrainingConfig, strategy: Strategy, share: int) -> int:
    """The largest one that fits into the memory of every worker's device; remembered on disk, for all trainings of such
    a model on such a device. Every worker must call it.

    Activations grow by the same amount with every sample: so what one and two samples take tells what all would, and
    nothing runs out of memory.

    Args:
        config: The training.
        strategy: Which has the model and its data.
        share: A worker's samples of the global batch.
    """
    workers = strategy.workers
    size = workers.from_first(recall(config, strategy)) if share > 1 else 1
    if size is None:
        samples = strategy.task.train_samples
        longest = sorted(range(min(len(samples), _LOOKED_AT)), key=lambda index: samples.size([index]))[-2:]
        one, two = (_memory(strategy, samples.batch(longest[-count:])) for count in (1, 2))
        most = (_limit(config, strategy) - one) // max(two - one, 1) + 1
        size = min(workers.gather(int(most)), default=0)
        size = max(1, workers.from_first(size))
        if workers.rank == 0:
            remember(config, strategy, size)
    return largest_divisor(share, size)


def _memory(strategy: Strategy, batch: Batch) -> int:
    """Bytes of the device at the height of a step with one micro batch; leaves no trace."""
    device = strategy.workers.device
    batch = on_device(batch, device)
    model = strategy.task.model
    trained = list(strategy.parameters.values())
    moments = 2 * sum(_bytes(each) for each in trained)  # of Adam; allocated at the end of the first step
    with without_trace(strategy):
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            strategy.backward([batch], 1, 1.0)
            needed = torch.cuda.max_memory_allocated(device)
        else:
            held: dict[int, int] = {}

            def hold(tensor: torch.Tensor) -> torch.Tensor:
                storage = _local(tensor).untyped_storage()
                held[storage.data_ptr()] = storage.nbytes()
                return tensor

            own = {_local(each).untyped_storage().data_ptr() for each in model.parameters()}
            with torch.autograd.graph.saved_tensors_hooks(hold, lambda tensor: tensor):
                strategy.backward([batch], 1, 1.0)
            weights = sum(_bytes(each) for each in model.parameters()) + sum(_bytes(each) for each in trained)
            needed = weights + sum(size for place, size in held.items() if place not in own)
    return needed + moments


def _local(tensor: torch.Tensor) -> torch.Tensor:
    local: Any = tensor.to_local() if hasattr(tensor, "to_local") else tensor  # a part of a sharded one
    arrived: torch.Tensor = local.wait() if hasattr(local, "wait") else local  # it may still be on its way
    return arrived


def _bytes(tensor: torch.Tensor) -> int:
    local = _local(tensor)
    return local.numel() * local.element_size()


def _shapes(batch: Batch) -> list[tuple[int, ...]]:
    return [tuple(batch[name].shape) for name in sorted(batch)]


def _limit(config: TrainingConfig, strategy: Strategy) -> int:
    """Bytes that a worker may plan with."""
    given, device = config.train.memory_limit_gib, strategy.workers.device
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        available = free + torch.cuda.memory_reserved(device)
    else:
        available = psutil.virtual_memory().available // int(os.environ.get("LOCAL_WORLD_SIZE", strategy.workers.size))
    return int(SPARE * (available if given is None else min(available, given * GIB)))


# --- remembered ----------------------------------------------------------------------------------------------


def recall(config: TrainingConfig, strategy: Strategy) -> int | None:
    """What has been found to fit, or has been halved to."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        found: int | None = json.loads(_file().read_text(encoding="utf-8")).get(_key(config, strategy))
        return found
    return None


def remember(config: TrainingConfig, strategy: Strategy, size: int) -> None:
    """Where nothing can be written, it is found anew every time."""
    with contextlib.suppress(OSError, RuntimeError, NotImplementedError):
        file = _file()
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_suffix(".lock")):
            known: dict[str, int] = {}
            with contextlib.suppress(OSError, ValueError):
                known = json.loads(file.read_text(encoding="utf-8"))
            written = file.with_suffix(".unfinished")
            written.write_text(json.dumps({**known, _key(config, strategy): size}, indent=1) + "\n", encoding="utf-8")
            written.replace(file)


def _file() -> Path:
    return cache_folder() / "micro_batch_sizes.json"


def _key(config: TrainingConfig, strategy: Strategy) -> str:
    """All that decides what fits, and a name that a person can find it by."""
    device = strategy.workers.device
    kind, size = "cpu", 0
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        kind, size = properties.name, properties.total_memory
    task, model = strategy.task, config.model
    shapes = sorted((tuple(each.shape), str(each.dtype), each.requires_grad) for each in task.model.parameters())
    data, samples = config.data, task.train_samples
    decisive: dict[str, Any] = {
        "model": type(task.model).__qualname__,
        "of activations": (model.attention, model.gradient_checkpointing) if isinstance(model, CausalLM) else None,
        "shapes": hashlib.sha256(repr(shapes).encode()).hexdigest(),
        "sample": data.sequence_length if isinstance(data, TextData) else _shapes(samples.batch([0])),
        "precision": config.train.precision,
        "strategy": dataclasses.asdict(config.strategy),
        "workers": strategy.workers.size,
        "device": size,
        "limit": config.train.memory_limit_gib,
    }
    digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]
    return f"{kind} {config.task.kind} {digest}"
