"""How much of a step workers spend on talking to each other, measured now and then."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch.profiler import ProfilerActivity, profile

from sweeps_train.workers import Workers

COLLECTIVES = "gloo:", "nccl"
"""What the names of those begin with: gloo's on CPUs, NCCL's kernels on GPUs."""


class CommunicationMeter:
    """Watches every so many steps with torch's profiler, which sees all that gloo and NCCL do, whoever asked for it.

    A worker that waits for a slower one is inside of a collective, too: that is part of the share.
    """

    def __init__(self, workers: Workers, every: int | None):
        """
        Args:
            workers: All of them; one alone is not watched.
            every: Steps from one that is watched to the next; None watches none.
        """
        self._every = every if workers.size > 1 else None
        self._device = workers.device
        self._shares: list[float] = []

    @contextmanager
    def watching(self, step: int) -> Iterator[None]:
        """Around the step after ``step``, which is watched if it is due: on all workers alike."""
        if self._every is None or (step + 1) % self._every:
            yield
            return
        # Its library says on stdout when it starts and stops.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        on_gpu = self._device.type == "cuda"
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
        with profile(activities=activities) as profiled:
            began = time.perf_counter_ns()
            yield
            if on_gpu:
                torch.cuda.synchronize(self._device)
            took = time.perf_counter_ns() - began
        # torch's own list of these makes an object of each, which takes longer than the step.
        events = profiled.profiler.kineto_results.events()
        spans = ((event.start_ns(), event.end_ns()) for event in events if event.name().startswith(COLLECTIVES))
        self._shares.append(min(1.0, covered(spans) / took))

    def take(self) -> list[float]:
        """This worker's mean share since it was taken last, if any step was watched: one number, or none."""
        shares, self._shares = self._shares, []
        return [sum(shares) / len(shares)] if shares else []


def covered(spans: Iterable[tuple[int, int]]) -> int:
    """The length of what spans (beginning, end) cover together: several may go on at once."""
    length, reached = 0, -1
    for begin, end in sorted(spans):
        length += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return length
