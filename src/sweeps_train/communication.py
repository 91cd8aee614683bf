"""How much of a step workers spend on talking to each other, measured now and then."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch.profiler import ProfilerActivity, profile

from sweeps_train.distributed import Workers

COLLECTIVES = "gloo:", "nccl"
"""What the names of those begin with: gloo's on CPUs, NCCL's kernels on GPUs."""


FIRST = 200
"""The step that is watched first where nobody says which ones are."""
MOST = 0.01
"""Part of the time that watching may then take."""


class CommunicationMeter:
    """Watches a step now and then with torch's profiler, which sees all that gloo and NCCL do, whoever asked for it.

    A worker that waits for a slower one is inside of a collective, too: that is part of the share.
    """

    def __init__(self, workers: Workers, every: int | Literal["auto"] | None):
        """
        Args:
            workers: All of them; one alone is not watched.
            every: Steps from one that is watched to the next; None watches none.
        """
        self._every = every if workers.size > 1 else None
        self._device = workers.device
        self._steps = 0
        self._due: float = FIRST
        self._unwatched, self._unwatched_s = 0, 0.0
        self._shares: list[float] = []
        self._costs: list[float] = []
        """Of steps that were watched, in steps that were not."""

    @contextmanager
    def watching(self, step: int) -> Iterator[None]:
        """Around the step after ``step``, which is watched if it is due: on all workers alike."""
        self._steps += 1
        began = time.perf_counter()
        if not self._is_due(step):
            yield
            self._unwatched, self._unwatched_s = self._unwatched + 1, self._unwatched_s + time.perf_counter() - began
            return
        # Its library says on stdout when it starts and stops.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        on_gpu = self._device.type == "cuda"
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
        with profile(activities=activities) as profiled:
            started = time.perf_counter_ns()
            yield
            if on_gpu:
                torch.cuda.synchronize(self._device)
            took = time.perf_counter_ns() - started
        # torch's own list of these makes an object of each, which takes longer than the step.
        events = profiled.profiler.kineto_results.events()
        spans = ((event.start_ns(), event.end_ns()) for event in events if event.name().startswith(COLLECTIVES))
        self._shares.append(min(1.0, covered(spans) / took))
        cost = time.perf_counter() - began
        self._costs.append(cost * self._unwatched / self._unwatched_s if self._unwatched else 0.0)
        self._due = math.inf

    def _is_due(self, step: int) -> bool:
        if self._every is None:
            return False
        return self._steps >= self._due if self._every == "auto" else (step + 1) % self._every == 0

    def take(self) -> list[float]:
        """This worker's mean share since it was taken last, and what watching cost, if any step was watched: two
        numbers, or none."""
        shares, costs = self._shares, self._costs
        self._shares, self._costs = [], []
        return [sum(each) / len(each) for each in (shares, costs)] if shares else []

    def space(self, cost: float) -> None:
        """Says when the next step is watched, if that is ours to choose.

        Args:
            cost: The mean over all workers of what they took: alike on all of them.
        """
        self._due = self._steps + max(FIRST, math.ceil(cost / MOST))


def covered(spans: Iterable[tuple[int, int]]) -> int:
    """The length of what spans (beginning, end) cover together: several may go on at once."""
    length, reached = 0, -1
    for begin, end in sorted(spans):
        length += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return length
