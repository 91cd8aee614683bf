"""Disk cache of the micro batch sizes that were measured, or reached by halving, for a model on a device."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import time
from pathlib import Path
from typing import Any

from filelock import FileLock

from sweeps_train.config import CausalLM, TextData, TrainingConfig
from sweeps_train.devices.device_operations import counts_memory, is_accelerator, name_of
from sweeps_train.errors import MicroBatchHalved
from sweeps_train.files.atomic_write import atomic_write
from sweeps_train.files.cache_folder import cache_folder
from sweeps_train.measures.measurement import Measurement
from sweeps_train.memory.device_memory import is_crowded, usable_memory
from sweeps_train.strategies.strategy import Strategy

MAX_AGE_S = 30 * 24 * 3600.0
"""Seconds after which a size is searched again: drivers and libraries change, and a size that another process made
small must not last."""


def recall(config: TrainingConfig, strategy: Strategy) -> int | None:
    """Return the cached micro batch size for this model and device; None if there is none younger than
    ``MAX_AGE_S``."""
    with contextlib.suppress(Exception):
        found: int | None = _entries(_file()).get(_key(config, strategy), {}).get("size")
        return found
    return None


def remember(config: TrainingConfig, strategy: Strategy, size: int) -> None:
    """Cache a micro batch size. If the cache cannot be written, each training searches again."""
    with contextlib.suppress(Exception):
        file = _file()
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_suffix(".lock")), atomic_write(file) as temporary:
            entry = {"size": size, "time": time.time()}
            content = {**_entries(file), _key(config, strategy): entry}
            temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def halved(config: TrainingConfig, strategy: Strategy, size: int) -> MicroBatchHalved:
    """Cache half of a size that ran out of memory, unless other processes had filled the GPU, and return the exception
    with which the training can be restarted."""
    half = math.ceil(size / 2)
    with Measurement("how full the GPU is").attempt():  # the training continues with smaller micro batches
        device = strategy.workers.device
        if not is_crowded(device) if counts_memory(device) else config.train.micro_batch_size == "auto":
            remember(config, strategy, half)
    return MicroBatchHalved(size, half)


def _entries(file: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of a cache file that are recent enough, by key; empty if it cannot be read."""
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
        return {key: each for key, each in entries.items() if 0 <= time.time() - each["time"] < MAX_AGE_S}
    except (OSError, ValueError, TypeError, AttributeError, KeyError):  # none yet, torn, or of an earlier version
        return {}


def _file() -> Path:
    return cache_folder() / "micro_batch_sizes.json"


def _key(config: TrainingConfig, strategy: Strategy) -> str:
    """Return a cache key: device and task in readable form, and a hash of everything that memory depends on."""
    device = strategy.workers.device
    kind = name_of(device) if is_accelerator(device) else "cpu"
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
        "strategy": (type(strategy).__name__, dataclasses.asdict(config.strategy)),  # a lane has its own class
        "workers": strategy.workers.size,
        "memory": usable_memory(device),
        "limit": config.train.memory_limit_gib,
    }
    digest = hashlib.sha256(json.dumps(dependencies, sort_keys=True).encode()).hexdigest()[:16]
    return f"{kind} {config.task.kind} {digest}"
