"""Measures the steps of any training in this process, and ends it when there are enough."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import profile

from sweeps_train.devices.device_operations import profiled_activities, synchronize

LARGEST = 12
"""Kernels whose times a profile names."""
WARMUP = 6
"""Steps before the first measured one: our loop counts FLOPs in the second, and compiles in the first and third."""
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernelEx", "cudaGraphLaunch")


class Enough(Exception):
    """Ends a training whose steps are measured."""


class StepClock:
    """Counts the steps of the only optimizer, and takes the time of each block of them."""

    def __init__(self, device: torch.device, block: int, blocks: int, seconds: float):
        """Read the clock, which waits for the device, after each block of steps; end the training after some blocks, or
        after ``seconds`` if it has two."""
        self._device, self._block, self._most, self._seconds = device, block, blocks, seconds
        self._created = self._began = time.perf_counter()
        self._measured_from = 0.0
        self._steps = 0
        self.first_s: float | None = None
        """Seconds from the making of this clock to the end of the first step."""
        self.warm_s: float | None = None
        """Seconds until the measured steps begin: all is compiled."""
        self.blocks: list[float] = []
        """Seconds of a step, the mean of each block."""

    def __call__(self, *_: Any) -> None:
        self._steps += 1
        if self._steps == 1:
            synchronize(self._device)
            self.first_s = time.perf_counter() - self._created
        after = self._steps - WARMUP
        if after < 0 or after % self._block:
            return
        synchronize(self._device)
        now = time.perf_counter()
        if after == 0:
            self.warm_s, self._measured_from = now - self._created, now
        else:
            self.blocks.append((now - self._began) / self._block)
            if len(self.blocks) >= self._most or (len(self.blocks) > 1 and now - self._measured_from > self._seconds):
                raise Enough
        self._began = now


class StepProfile:
    """Profiles some steps of the only optimizer: launches, and the time in which the device computes."""

    STEPS = 3

    def __init__(self, device: torch.device):
        self._device = device
        self._steps = 0
        self._profile = profile(activities=profiled_activities(device))
        self._began = 0.0
        self.found: dict[str, Any] = {}

    def __call__(self, *_: Any) -> None:
        self._steps += 1
        if self._steps == WARMUP:
            synchronize(self._device)
            self._profile.start()
            self._began = time.perf_counter()
        if self._steps == WARMUP + self.STEPS:
            synchronize(self._device)
            seconds = time.perf_counter() - self._began
            self._profile.stop()
            self.found = self._summary(seconds)
            raise Enough

    def _summary(self, seconds: float) -> dict[str, Any]:
        events = self._profile.key_averages()
        kernels = [each for each in events if each.device_type == DeviceType.CUDA]  # operators have their times again
        steps = self.STEPS
        return {
            "step_s_profiled": seconds / steps,
            "device_s": sum(each.self_device_time_total for each in kernels) / 1e6 / steps,
            "launches": sum(each.count for each in events if each.key in LAUNCHES) / steps,
            "operators": sum(each.count for each in events if each.key.startswith("aten::")) / steps,
            "optimizer_cpu_s": sum(each.cpu_time_total for each in events if each.key.startswith("Optimizer.step"))
            / 1e6
            / steps,
            "kernels_ms": {
                each.key[:100]: each.self_device_time_total / 1e3 / steps
                for each in sorted(kernels, key=lambda each: -each.self_device_time_total)[:LARGEST]
            },
        }


@contextmanager
def after_each_step(hook: StepClock | StepProfile) -> Iterator[None]:
    """Call the hook after each step of any optimizer, until it has enough."""
    handle = register_optimizer_step_post_hook(hook)
    try:
        yield
    except Enough:
        pass
    finally:
        handle.remove()
