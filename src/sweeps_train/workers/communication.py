"""The share of a step that workers spend on communication, measured in a sample of steps."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

from torch.profiler import profile

from sweeps_train.compat.torch import profiled_spans
from sweeps_train.devices.device_operations import profiled_activities, synchronize
from sweeps_train.measures.measurement import Measurement
from sweeps_train.workers.distributed import Workers

COLLECTIVES = "gloo:", "nccl"
"""Name prefixes of collective operations: gloo's on CPUs, NCCL's kernels on GPUs."""
FIRST = 200
"""First step that is measured, and minimum distance between measured steps, if the config says ``auto``."""
MOST = 0.003
"""Maximum share of the training's time that measuring takes if the config says ``auto``."""


class CommunicationMeter:
    """Measures a sample of steps with torch's profiler, which records all operations of gloo and NCCL.

    While a worker waits for a slower one, it is inside of a collective; so this time is part of the share.
    """

    def __init__(self, workers: Workers, every: int | Literal["auto"] | None, note: Callable[[str], None]):
        """Measure one in ``every`` steps, or none; a single worker is not measured. ``note`` tells the user something,
        on rank 0."""
        self._measurement = Measurement("train/communication_share", note)
        self._every = every if workers.size > 1 else None
        self._device = workers.device
        self._steps = 0
        self._due: float = FIRST
        self._other_steps, self._other_s = 0, 0.0
        self.measured: tuple[float, ...] = 0, 0.0, 0.0
        """Number of steps measured so far, and the sums of their shares and of their times, the latter as multiples of
        the time of an unmeasured step; NaN if measuring failed."""

    @contextmanager
    def watching(self, step: int) -> Iterator[None]:
        """Context manager for the step after ``step``, which is measured if due; the decision is the same on all
        workers."""
        self._steps += 1
        began = time.perf_counter()
        if not self._is_due(step):
            yield
            self._other_steps, self._other_s = self._other_steps + 1, self._other_s + time.perf_counter() - began
            return
        self._due, share, cost = math.inf, math.nan, math.nan
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # no messages of the profiler on stdout
        with self._measurement.around(lambda: profile(activities=profiled_activities(self._device))) as profiled:
            started = time.perf_counter_ns()
            yield
            synchronize(self._device)
            took = time.perf_counter_ns() - started
        if profiled is not None and not self._measurement.failed:
            with self._measurement.attempt():
                share = min(1.0, covered(profiled_spans(profiled, COLLECTIVES)) / took)
                spent = time.perf_counter() - began
                cost = spent * self._other_steps / self._other_s if self._other_steps else 0.0
        self.measured = tuple(map(sum, zip(self.measured, (1, share, cost), strict=True)))

    def _is_due(self, step: int) -> bool:
        if self._every is None:
            return False
        return self._steps >= self._due if self._every == "auto" else (step + 1) % self._every == 0

    def since(self, earlier: tuple[float, ...]) -> list[float]:
        """Return this worker's mean share of communication and mean cost of measuring since ``measured`` had an earlier
        value: two numbers, NaN if measuring failed, or an empty list if no step was due."""
        number, *sums = (now - before for now, before in zip(self.measured, earlier, strict=True))
        return [each / number for each in sums] if number else []

    def schedule_next(self, cost: float) -> None:
        """Choose the next step to measure if the config says ``auto``, unless another training of the group has done
        so; choose none if a worker cannot measure. ``cost`` is the mean extra time of a measured step over all workers,
        in steps."""
        if math.isnan(cost):
            self._every = None
        elif math.isinf(self._due):
            self._due = self._steps + max(FIRST, math.ceil(cost / MOST))


def covered(spans: Iterable[tuple[int, int]]) -> int:
    """Return the length of the union of spans, given as pairs of start and end.

    >>> covered([(0, 4), (3, 5), (8, 9)])
    6
    """
    length, reached = 0, -1
    for begin, end in sorted(spans):
        length += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return length
