"""Model FLOP utilisation: the arithmetic that a training needs, over what its devices could do in the time."""

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
"""10^12 operations a second of matrices in 16 bits without sparsity, by NVIDIA's data sheets; by a part of the device's
name, the first that fits."""


def peak_tflops(device: torch.device) -> float | None:
    """None for a device that nobody has said it of, as CPUs."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for known, peak in PEAK_TFLOPS.items() if known in name), None)


class FlopMeter:
    """Counts one step, of which all others have as much for each sample or token: the second, since in the first one
    pipelines find out what they send.

    Recomputed activations are work, and no part of what the training needs: they are taken off by the rule that a
    forward pass and the gradients of its inputs take the same, and the gradients of the weights as much for those that
    are trained.
    """

    def __init__(self, workers: Workers, peak: float | None):
        """
        Args:
            workers: All of them.
            peak: 10^12 operations a second of one worker's device; None if nobody knows: nothing is counted then.
        """
        self._workers = workers
        self._peak = peak
        self._steps = 0
        self._per_unit: float | None = None

    @contextmanager
    def counting(self, strategy: Strategy, size: int) -> Iterator[None]:
        """Around a step of ``size`` samples or tokens over all workers; every worker must call it."""
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
        # transformers marks layers so, whoever has asked for it.
        marked = any(getattr(each, "gradient_checkpointing", False) for each in model.modules())
        needed = (2 + fraction) / (3 + fraction) if strategy.recomputes or marked else 1.0
        (flops,) = self._workers.sum([counter.get_total_flops() * needed / strategy.counted_by])
        self._per_unit = flops / size

    def metrics(self, per_second: float) -> dict[str, float]:
        """``train/flop_utilization``, from 0 to 1, at a speed in samples or tokens of all workers."""
        if self._peak is None or self._per_unit is None:
            return {}
        return {"train/flop_utilization": self._per_unit * per_second / (self._peak * 1e12 * self._workers.size)}
