"""The size of a micro batch: how many samples fit into a device's memory at once. ``out_of_memory`` halves it later."""

from __future__ import annotations

import math
from typing import Any

import torch

from sweeps_train.config import TrainingConfig
from sweeps_train.data.sample_order import Batch
from sweeps_train.devices.device_operations import (
    counts_memory,
    empty_cache,
    is_accelerator,
    peak_memory,
    reset_peak_memory,
)
from sweeps_train.errors import is_out_of_memory
from sweeps_train.measures.measurement import Measurement
from sweeps_train.memory.device_memory import usable_memory
from sweeps_train.memory.micro_batch_cache import halved, recall, remember
from sweeps_train.memory.probe_step import probe_step, restored_state
from sweeps_train.steps.micro_batches import num_rows
from sweeps_train.strategies.strategy import Strategy, on_device

GIB = 2**30
USABLE_OF_GPU = 0.9
"""Part of a GPU's memory that is planned for; the rest is for fragmentation and for the workspace of kernels."""
USABLE_OF_MACHINE = 0.7
"""Part of a machine's memory that is planned for; the rest is for the system, other programs and Ray."""
ADVICE = "use a shorter data.sequence_length, model.gradient_checkpointing=true or strategy=fsdp"
"""Advice for a sample that does not fit into memory."""
_SAMPLES_SEARCHED = 256
"""Number of samples among which the longest ones are tried."""


def largest_divisor(share: int, most: float) -> int:
    """Return the largest micro batch size up to ``most`` that divides a worker's share; 1 if no larger one does.

    >>> largest_divisor(12, most=7)
    6
    """
    return max(size for size in range(1, share + 1) if share % size == 0 and (size <= most or size == 1))


def choose_micro_batch_size(config: TrainingConfig, strategy: Strategy, configured: int, most: int | None) -> int:
    """Choose the number of samples per forward pass at the start of a training: the configured one, or with ``auto``
    the largest that fits, but at most the size to which an earlier attempt was halved. Every worker must call it."""
    workers, size, is_searched = strategy.workers, configured, config.train.micro_batch_size == "auto"
    if is_searched:
        size = config.train.global_batch_size // strategy.data_parallel.size
        if 1 in (size, most):
            return 1
    if is_searched or is_accelerator(workers.device):  # CPUs never report that they are out of memory
        known = workers.broadcast(recall(config, strategy))
        if known is None and is_searched:
            known = _measured_size(config, strategy)
        size = size if known is None else largest_divisor(size, known)
    return size if most is None else largest_divisor(size, most)


def _measured_size(config: TrainingConfig, strategy: Strategy) -> int:
    """Find the largest micro batch that fits into the memory of every worker's device. Every worker must call it.

    Every sample adds the same amount of activations, so the memory for one and for two samples gives that for any
    number. The result is cached on disk for all trainings of such a model on such a device. Where it cannot be measured
    the size is 1.

    Raises:
        torch.OutOfMemoryError: Not even one sample fits.
        MicroBatchHalved: Two samples do not fit, and workers wait for each other in every layer.
    """
    workers, samples = strategy.workers, strategy.task.train_samples
    searched = range(min(len(samples), _SAMPLES_SEARCHED))
    longest = sorted(searched, key=lambda index: samples.size([index]))[-2:]
    measurement = Measurement("the memory of a step (train.micro_batch_size=auto)")
    try:
        one = _largest_need(config, strategy, samples.batch(longest[-1:]), measurement)
        if one is None:
            raise torch.OutOfMemoryError(f"train.micro_batch_size=auto: one sample does not fit; {ADVICE}")
        two = _largest_need(config, strategy, samples.batch(longest), measurement)
    except _UnmeasuredError:
        return 1
    if two is None:
        return 1
    most = 1.0
    with measurement.attempt():
        most = (_memory_limit(config, strategy) - one) // max(two - one, 1) + 1
    size = max(1, int(-workers.max([-most])[0]))
    if workers.rank == 0 and size > 1:  # 1 may come from a worker that could not measure
        remember(config, strategy, size)
    return size


class _UnmeasuredError(Exception):
    """Raised on all workers if one of them could not measure its memory."""


def _largest_need(config: TrainingConfig, strategy: Strategy, batch: Batch, measurement: Measurement) -> int | None:
    """Return the largest peak memory of any worker in a step with one micro batch, in bytes; None if a worker ran out
    of memory.

    Raises:
        RuntimeError: This worker's memory is too small, while others wait for it in a layer: ``MicroBatchHalved`` if
            the batch can be halved.
        _UnmeasuredError: The step has failed for another reason, which the user sees if it fails in the training as
            well.
    """
    needed, others_wait = math.inf, not strategy.capabilities.can_retry_oom
    try:
        needed = _memory(strategy, batch)
    except Exception as error:
        if is_out_of_memory(error):
            rows, message = num_rows(batch), f"train.micro_batch_size=auto: one sample does not fit ({error}); {ADVICE}"
            smaller = halved(config, strategy, rows) if rows > 1 else torch.OutOfMemoryError(message)
            if others_wait:
                raise smaller from error
        elif others_wait:
            raise
        else:
            measurement.fail(error)
    empty_cache(strategy.workers.device)
    largest, failed = strategy.workers.max([needed, measurement.failed])
    if failed:
        raise _UnmeasuredError
    return None if math.isinf(largest) else int(largest)


def _memory(strategy: Strategy, batch: Batch) -> int:
    """Return the peak memory in bytes of a step with one micro batch; the training's state is restored."""
    device = strategy.workers.device
    batch = on_device(batch, device)
    model = strategy.task.model
    trained = list(strategy.parameters.values())
    moments = 2 * sum(_local(each).nbytes for each in trained)  # of Adam; allocated at the end of the first step
    with restored_state(strategy):
        if counts_memory(device):
            reset_peak_memory(device)
            probe_step(strategy, batch)
            needed = peak_memory(device)
        else:
            saved: dict[int, int] = {}

            def save(tensor: torch.Tensor) -> torch.Tensor:
                storage = _local(tensor).untyped_storage()
                saved[storage.data_ptr()] = storage.nbytes()
                return tensor

            own = {_local(each).untyped_storage().data_ptr() for each in model.parameters()}
            with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
                probe_step(strategy, batch)
            weights = sum(_local(each).nbytes for each in [*model.parameters(), *trained])
            needed = weights + sum(size for address, size in saved.items() if address not in own)
    return needed + moments


def _local(tensor: torch.Tensor) -> torch.Tensor:
    local: Any = tensor.to_local() if hasattr(tensor, "to_local") else tensor  # the shard of a DTensor
    arrived: torch.Tensor = local.wait() if hasattr(local, "wait") else local  # a collective may still be running
    return arrived


def _memory_limit(config: TrainingConfig, strategy: Strategy) -> int:
    """Return the number of bytes that a worker may plan to use."""
    configured, device = config.train.memory_limit_gib, strategy.workers.device
    usable = usable_memory(device) if configured is None else min(usable_memory(device), configured * GIB)
    return int(usable * (USABLE_OF_GPU if counts_memory(device) else USABLE_OF_MACHINE))
