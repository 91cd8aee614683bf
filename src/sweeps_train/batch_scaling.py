"""How large the global batch is made, so that workers spend no more than a part of a step on exchanging gradients.

They are exchanged once a step, whatever its size: so a step on twice as many samples spends half as much of its time on
it. The smallest batch that is large enough is taken, since a larger one is other mathematics.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from sweeps_train.config import Train
from sweeps_train.config.strategy import DDP
from sweeps_train.data.sampler import Batch
from sweeps_train.probe_step import without_trace
from sweeps_train.strategies import Strategy
from sweeps_train.strategies.strategy import on_device

REPETITIONS = 5
"""Of what is timed, after one that is not; the median counts."""
_SENT_AS = {"fp16": torch.float16, "bf16": torch.bfloat16}


def choose_batch_factor(
    train: Train, config: DDP, strategy: Strategy, micro_batches: Sequence[Batch], most: int
) -> tuple[int, str]:
    """How many times ``train.global_batch_size`` a step takes, and why: alike on all workers. All must call it.

    Args:
        train: Has ``max_communication_share``.
        config: What gradients are sent as.
        strategy: Which has the model.
        micro_batches: This worker's part of one ``train.global_batch_size``, in the CPU's memory.
        most: The largest factor that is allowed.
    """
    assert train.max_communication_share is not None
    workers = strategy.workers
    exchange = _exchange_seconds(config, strategy) if workers.size > 1 else 0.0
    compute = _compute_seconds(strategy, micro_batches[0]) * len(micro_batches)
    # All must come to the same, and they go at the pace of the slowest.
    exchange, compute = (workers.from_first(max(workers.gather(each), default=0.0)) for each in (exchange, compute))
    factor = batch_factor(train.max_communication_share, exchange, compute, most)
    size, larger = train.global_batch_size, train.global_batch_size * factor
    reached = exchange / (exchange + compute * factor)
    return factor, (
        f"each step takes {larger} samples: workers compute the gradients of train.global_batch_size={size} in "
        f"{compute * 1e3:.3g} ms and exchange them in {exchange * 1e3:.3g} ms, which now is {reached:.1%} of a step "
        f"(train.max_communication_share={train.max_communication_share:g})"
    )


def batch_factor(share: float, exchange_s: float, compute_s: float, most: int) -> int:
    """The smallest factor, up to ``most``, at which exchanging is at most ``share`` of exchanging and computing.

    That computing hides some of the exchange is left out: what is promised holds without it.
    """
    return min(most, max(1, math.ceil(exchange_s * (1 - share) / (share * compute_s))))


def _exchange_seconds(config: DDP, strategy: Strategy) -> float:
    """Of an all-reduce of as many bytes as all gradients have."""
    numbers = sum(each.numel() for each in strategy.parameters.values())
    kind = _SENT_AS.get(config.compression, next(iter(strategy.parameters.values())).dtype)
    gradients = torch.zeros(numbers, dtype=kind, device=strategy.workers.device)
    return _timed(strategy, lambda: dist.all_reduce(gradients))


def _compute_seconds(strategy: Strategy, micro_batch: Batch) -> float:
    """Of one micro batch, forward and backward."""
    batch = on_device(micro_batch, strategy.workers.device)

    def step() -> None:
        with strategy.precision.autocast():
            loss = strategy.task.loss(strategy.task.logits(strategy.model, batch), batch)
        torch.autograd.backward(loss)

    with without_trace(strategy):
        return _timed(strategy, step)


def _timed(strategy: Strategy, action: Callable[[], object]) -> float:
    """Median seconds."""
    took = []
    for _ in range(REPETITIONS + 1):
        strategy.workers.sum([0.0])  # all begin together
        began = time.perf_counter()
        action()
        if strategy.workers.device.type == "cuda":
            torch.cuda.synchronize(strategy.workers.device)
        took.append(time.perf_counter() - began)
    return statistics.median(took[1:])
