"""A step that is gone through before the training begins, to learn what it takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sweeps_train.random_state import random_state, set_random_state
from sweeps_train.strategies import Strategy


@contextmanager
def without_trace(strategy: Strategy) -> Iterator[None]:
    """Afterwards random states, buffers and gradients are what they were; the optimizer must not be called within."""
    device, model = strategy.workers.device, strategy.task.model
    before = random_state(device)
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers() if not buffer.is_meta}
    try:
        yield
    finally:
        strategy.forget()
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                if name in buffers:
                    buffer.copy_(buffers[name])
        set_random_state(before, device)
