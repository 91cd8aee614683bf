"""Asynchronous search by another library, in simulated time."""

from __future__ import annotations

import heapq
import itertools
import math
from typing import Literal, NamedTuple, Protocol

from search_problems import METRIC, Problem

from sweeps.simulate.simulation import Outcome, Reported
from sweeps.space.space import Point
from sweeps.space.suggester import RandomDraws

ETA = 3
WORST = 1e6
"""Loss of a training that has diverged, for libraries that take finite numbers only."""
Decision = Literal["continue", "pause", "stop"]


class Job(NamedTuple):
    """A trial to start, or to go on with where it was paused."""

    number: int
    point: Point


class Peer(Protocol):
    """A search of another library. Progress counts first reports: 1, 2, 3, ... to ``longest``."""

    def next(self) -> Job | None:
        """The trial for a worker that is free; None to wait until another trial reports."""

    def report(self, number: int, progress: int, loss: float) -> Decision:
        """Take a report; with the progress of ``longest`` the trial has ended, whatever this returns."""


def longest_progress(problem: Problem) -> int:
    """Progress of a whole training."""
    curve = problem.source(0, every_step=True).curve(problem.space.sample(RandomDraws(0), lambda path: None))
    return round(curve[-1].step / curve[0].step)


def top_rung(longest: int) -> int:
    """The highest power of ``ETA`` up to a whole training: the highest of the rungs."""
    return ETA ** int(math.log(longest, ETA) + 1e-9)


def rung_progress(progress: int, longest: int) -> int:
    """Progress for a library whose highest rung is the end: it reaches ``top_rung`` at the end, not before."""
    top = top_rung(longest)
    return top if progress >= longest else min(progress, top - 1)


def run_peer(peer: Peer, problem: Problem, seed: int, workers: int, limit_s: float) -> tuple[Outcome, dict[int, Point]]:
    """Run a new search for some simulated seconds."""
    source = problem.source(seed, every_step=True)
    curves, positions, points = {}, {}, {}
    events: list[tuple[float, int, int]] = []
    order = itertools.count()
    reports: list[Reported] = []

    def train(number: int, now: float) -> None:
        curve, position = curves[number], positions[number]
        before = curve[position - 1].elapsed_s if position else 0.0
        heapq.heappush(events, (now + curve[position].elapsed_s - before, next(order), number))

    def fill(now: float) -> None:
        while len(events) < workers and (job := peer.next()) is not None:
            if job.number not in curves:
                points[job.number] = dict(job.point)
                curves[job.number], positions[job.number] = source.curve(job.point), 0
            train(job.number, now)

    fill(0.0)
    while events and events[0][0] <= limit_s:
        now, _, number = heapq.heappop(events)
        curve, position = curves[number], positions[number]
        made = curve[position]
        positions[number] += 1
        reports.append(Reported(now, number, made.step, dict(made.metrics)))
        loss = made.metrics[METRIC]
        progress = round(made.step / curve[0].step)
        decision = peer.report(number, progress, loss if math.isfinite(loss) else WORST)
        if decision == "continue" and positions[number] < len(curve):
            train(number, now)
        fill(now)
    return Outcome(reports, limit_s, 0.0, {}, None), points
