"""Probe steps: forward and backward passes before the training begins, to measure their memory or time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sweeps_train.data.sample_order import Batch
from sweeps_train.steps.random_state import random_state, set_random_state
from sweeps_train.strategies.strategy import Strategy


def probe_step(strategy: Strategy, batch: Batch) -> None:
    """Run one micro batch, which is on the device, forward and backward.

    Workers do not wait for each other if the strategy allows that, so that one may run out of memory alone; if every
    layer communicates, all workers must call it.
    """
    if not strategy.capabilities.can_retry_oom:
        strategy.backward([batch], 1.0)
        return
    with strategy.precision.autocast():
        loss = strategy.task.loss(strategy.task.logits(strategy.model, batch), batch)
    torch.autograd.backward(loss)


@contextmanager
def restored_state(strategy: Strategy) -> Iterator[None]:
    """Restore random states and buffers and drop gradients at the end of a ``with`` block, which must not step the
    optimizer."""
    device, model = strategy.workers.device, strategy.task.model
    before = random_state(device)
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers() if not buffer.is_meta}
    try:
        yield
    finally:
        strategy.zero_grad()
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                if name in buffers:
                    buffer.copy_(buffers[name])
        set_random_state(before, device)
