"""Model FLOP utilisation: the arithmetic that a training needs, relative to the peak of its devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils.flop_counter import FlopCounterMode

from sweeps_train.distributed import Workers
from sweeps_train.strategies import Strategy

PEAK_TFLOPS = {
    "B200": 2250.0,
    "H200": 989.0,
    "H100 PCIe": 756.0,
    "H100": 989.0,
    "A100": 312.0,
    "L40S": 362.0,
    "L4": 121.0,
    "A10G": 125.0,
    "A10": 125.0,
    "V100": 125.0,
    "T4": 65.0,
    "RTX 4090": 165.0,
}
"""Dense 16-bit matrix performance in 10^12 operations per second, from NVIDIA's data sheets, by a part of the device's
name; the first match counts."""


def peak_tflops(device: torch.device) -> float | None:
    """Peak performance of a device in 10^12 operations per second; None if it is unknown, as for CPUs."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for known, peak in PEAK_TFLOPS.items() if known in name), None)


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
        with FlopCounterMode(display=False) as counter:
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
