"""Model FLOP utilisation: the arithmetic that a training needs, relative to the peak of its devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils.flop_counter import FlopCounterMode

from sweeps_train.distributed import Workers
from sweeps_train.strategies import Strategy


class FlopMeter:
    """Counts the FLOPs of one step; others have as many for each sample or token.

    The second step is counted, since a pipeline exchanges tensor shapes in the first. Recomputed activations are
    subtracted: a forward pass and the gradients of its inputs count as much as each other, and the gradients of the
    weights as the trained fraction of that.
    """

    def __init__(self, workers: Workers, peak: float | None):
        """
        Args:
            workers: All workers.
            peak: Peak of one worker's device in 10^12 operations per second; None counts nothing.
        """
        self._workers = workers
        self._peak = peak
        self._steps = 0
        self._per_unit: float | None = None

    @contextmanager
    def counting(self, strategy: Strategy, size: int) -> Iterator[None]:
        """Context of a step of ``size`` samples or tokens over all workers; every worker must enter it."""
        self._steps += 1
        if self._peak is None or self._steps != 2:
            yield
            return
        model = strategy.task.model
        parameters = list(model.parameters())
        trained = sum(each.numel() for each in parameters if each.requires_grad)
        fraction = trained / sum(each.numel() for each in parameters)
        # Compiled code is not counted, and torch would never again run a compiled function that was called under the
        # counter. So this step is not compiled.
        with torch.compiler.set_stance("force_eager"), FlopCounterMode(display=False) as counter:
            yield
        capabilities = strategy.capabilities
        recomputes = capabilities.activation_checkpointing or any(
            getattr(each, "gradient_checkpointing", False)  # set by transformers
            for each in model.modules()
        )
        needed = (2 + fraction) / (3 + fraction) if recomputes else 1.0
        (flops,) = self._workers.sum([counter.get_total_flops() * needed / capabilities.flop_counters])
        self._per_unit = flops / size

    def metrics(self, per_second: float) -> dict[str, float]:
        """``train/flop_utilization``, from 0 to 1, at a speed in samples or tokens per second of all workers."""
        if self._peak is None or self._per_unit is None:
            return {}
        return {"train/flop_utilization": self._per_unit * per_second / (self._peak * 1e12 * self._workers.size)}
