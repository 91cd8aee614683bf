"""Model FLOP utilisation: the arithmetic that a training needs, relative to its devices' peak."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch

from sweeps_train.compat.flop_count import FlopCount
from sweeps_train.compat.late_compiler import compiler_is_loaded
from sweeps_train.measures.measurement import Measurement
from sweeps_train.strategies.strategy import Strategy

UTILIZATION = "train/flop_utilization"
"""Metric: part of the peak performance of all workers' devices, from 0 to 1."""


class FlopMeter:
    """Counts the FLOPs of one step; other steps need equally many per sample or token.

    The second step is counted, since a pipeline exchanges tensor shapes in the first. Recomputed activations are
    subtracted, assuming that a forward pass and the gradients of its inputs take equally many FLOPs, and the gradients
    of the weights the trained fraction of that number.
    """

    def __init__(self, peak: float | None, note: Callable[[str], None]):
        """Count nothing unless the peak of this worker's device is known, in 10^12 operations per second."""
        self._peak, self._measurement = peak, Measurement(UTILIZATION, note)
        self._steps = 0
        self._per_unit = math.nan
        """FLOPs of this worker for each sample or token of the global batch; NaN until counted, or if that fails."""

    @contextmanager
    def counting(self, strategy: Strategy, size: int) -> Iterator[None]:
        """Context manager for a step of ``size`` samples or tokens over all workers."""
        self._steps += 1
        if self._peak is None or self._steps != 2:
            yield
            return
        measurement = self._measurement
        # Compiled code is not counted, and torch would never again run a compiled function that was called while
        # operations are counted. So this step is not compiled.
        compiles = compiler_is_loaded()
        eager = functools.partial(torch.compiler.set_stance, "force_eager") if compiles else nullcontext
        with measurement.around(eager), measurement.around(FlopCount) as count:
            yield
        if count is not None and not measurement.failed:
            with measurement.attempt():
                self._per_unit = count.take() * needed_part(strategy) / size

    def own(self) -> tuple[float, float]:
        """Return the FLOPs that this worker does for each sample or token of the global batch, and its device's peak in
        10^12 operations per second; NaN if unknown."""
        return self._per_unit, math.nan if self._peak is None else self._peak


def needed_part(strategy: Strategy) -> float:
    """Return the share of a worker's operations that recompute neither its own nor other workers' results."""
    model, capabilities = strategy.task.model, strategy.capabilities
    parameters = list(model.parameters())
    trained = sum(each.numel() for each in parameters if each.requires_grad)
    fraction = trained / sum(each.numel() for each in parameters)
    recomputes = capabilities.activation_checkpointing or any(
        getattr(each, "gradient_checkpointing", False)  # set by transformers
        for each in model.modules()
    )
    return ((2 + fraction) / (3 + fraction) if recomputes else 1.0) / capabilities.flop_counters


def utilization(per_unit: float, peak: float, per_second: float) -> dict[str, float]:
    """Return ``train/flop_utilization``; an empty dict if it is unknown.

    Args:
        per_unit: FLOPs for each sample or token, of all workers.
        peak: Peak of all workers' devices, in 10^12 operations per second.
        per_second: Samples or tokens per second.

    Example:
        >>> utilization(1e9, 2.0, 500), utilization(float("nan"), 2.0, 500)
        ({'train/flop_utilization': 0.25}, {})
    """
    share = per_unit * per_second / (peak * 1e12)
    return {} if math.isnan(share) else {UTILIZATION: share}
