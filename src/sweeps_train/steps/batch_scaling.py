"""Scales the global batch so that workers spend at most a given share of a step on exchanging gradients.

Gradients are exchanged once a step, whatever its size: a step on twice as many samples spends about half as large a
share of its time on it. The smallest sufficient batch is taken, since a larger one changes the mathematics of the
training.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from sweeps_train.config import TrainingConfig
from sweeps_train.config.strategy import DDP
from sweeps_train.data.sample_order import Batch, SampleOrder, in_batches
from sweeps_train.devices.device_operations import synchronize
from sweeps_train.errors import is_out_of_memory
from sweeps_train.measures.measurement import Measurement
from sweeps_train.memory.micro_batch_cache import halved
from sweeps_train.memory.probe_step import probe_step, restored_state
from sweeps_train.steps.micro_batches import num_rows
from sweeps_train.strategies.strategy import Strategy, on_device

REPETITIONS = 5
"""Timed repetitions, after one that is not timed; the median counts."""
_WIRE_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def scale_global_batch(
    config: TrainingConfig, strategy: Strategy, order: SampleOrder, micro_batch_size: int, previous: int | None
) -> tuple[int, str | None]:
    """Choose the multiple of ``train.global_batch_size`` for each step: 1 without ``train.max_global_batch_size``, and
    in a resumed training the ``previous`` one if the data allows it. Return it, and the reason for it if it was
    measured now. Every worker must call it."""
    train, samples = config.train, strategy.task.train_samples
    if train.max_global_batch_size is None:
        return 1, None
    most = min(train.max_global_batch_size, len(samples)) // train.global_batch_size
    if previous is not None:
        return min(previous, most), None
    share = strategy.data_parallel.shard(order.take(0, train.global_batch_size))
    micro_batches = [samples.batch(each) for each in in_batches(share, micro_batch_size)]
    return _measured_factor(config, strategy, micro_batches, most)


def _measured_factor(
    config: TrainingConfig, strategy: Strategy, micro_batches: Sequence[Batch], most: int
) -> tuple[int, str]:
    train, workers = config.train, strategy.workers
    assert train.max_communication_share is not None and isinstance(config.strategy, DDP)
    exchange = _exchange_seconds(config.strategy, strategy) if workers.size > 1 else 0.0
    compute = _compute_seconds(config, strategy, micro_batches[0]) * len(micro_batches)
    # The slowest worker's times, on all workers, which must come to the same result.
    by_worker = workers.all_gather([exchange, compute])
    exchange, compute = (math.nan if any(map(math.isnan, each)) else max(each) for each in zip(*by_worker, strict=True))
    if math.isnan(compute):
        return 1, f"train.global_batch_size={train.global_batch_size} is kept: the time of a step could not be measured"
    factor = batch_factor(train.max_communication_share, exchange, compute, most)
    size, larger = train.global_batch_size, train.global_batch_size * factor
    reached = exchange / (exchange + compute * factor)
    return factor, (
        f"each step takes {larger} samples: workers compute the gradients of train.global_batch_size={size} in "
        f"{compute * 1e3:.3g} ms and exchange them in {exchange * 1e3:.3g} ms, which now is {reached:.1%} of a step "
        f"(train.max_communication_share={train.max_communication_share:g})"
    )


def batch_factor(share: float, exchange_s: float, compute_s: float, most: int) -> int:
    """Return the smallest factor up to ``most`` at which the exchange takes at most ``share`` of a step.

    Exchange and computation are assumed not to overlap.

    >>> batch_factor(0.1, exchange_s=1.0, compute_s=3.0, most=10)
    3
    """
    return min(most, max(1, math.ceil(exchange_s * (1 - share) / (share * compute_s))))


def _exchange_seconds(config: DDP, strategy: Strategy) -> float:
    """Return the seconds of an all-reduce of as many bytes as the gradients have."""
    numbers = sum(each.numel() for each in strategy.parameters.values())
    dtype = _WIRE_DTYPES.get(config.compression, next(iter(strategy.parameters.values())).dtype)
    gradients = torch.zeros(numbers, dtype=dtype, device=strategy.workers.device)
    return _timed(strategy, lambda: dist.all_reduce(gradients))


def _compute_seconds(config: TrainingConfig, strategy: Strategy, micro_batch: Batch) -> float:
    """Return the seconds of the forward and backward pass of one micro batch; NaN if it fails.

    Raises:
        MicroBatchHalved: The micro batch does not fit into this worker's memory, while others wait to begin together.
    """
    measurement = Measurement("the time of a step (train.max_global_batch_size)")
    batch = on_device(micro_batch, strategy.workers.device)

    def step() -> None:
        try:
            probe_step(strategy, batch)
        except Exception as error:
            if not is_out_of_memory(error):
                measurement.fail(error)  # if it fails in the training, too, the user sees it there
            elif (size := num_rows(micro_batch)) == 1:
                raise
            else:
                raise halved(config, strategy, size) from error

    with restored_state(strategy):
        seconds = _timed(strategy, step)
    return math.nan if measurement.failed else seconds


def _timed(strategy: Strategy, action: Callable[[], object]) -> float:
    """Return the median seconds of an action."""
    seconds = []
    for _ in range(REPETITIONS + 1):
        strategy.workers.sum([0.0])  # all workers begin together
        began = time.perf_counter()
        action()
        synchronize(strategy.workers.device)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])
