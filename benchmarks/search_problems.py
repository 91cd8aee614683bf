"""Problems for searches: functions with a fidelity, and recorded learning curves."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from curve_files import read_space

from sweeps.config.space import CategoricalDistribution, OrdinalDistribution
from sweeps.simulate.recorded_table import CurveTable, Report, point_key, read_table
from sweeps.simulate.simulation import CurveSource, Reported
from sweeps.simulate.surrogate import ForestCurve, NearestCurve, SurrogateError
from sweeps.space.space import Point, Space

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.append(str(CHECKOUT / "tests"))  # the function that tests use as well

from hartmann import LONGEST, Hartmann  # noqa: E402

METRIC = "loss"
RUNGS = (1, 3, 9, 27, 81, LONGEST)
MEDIAN_POINTS = 2001


class Problem(Protocol):
    """A search problem whose optimum is known. Losses are minimised."""

    name: str
    space: Space
    full_s: float
    """Seconds of a full training."""

    def source(self, seed: int, *, every_step: bool = False) -> CurveSource:
        """Curves of one search, with the noise of this seed; a function reports at rungs alone, or after every step."""

    def regret(self, reports: Sequence[Reported], points: dict[int, Point]) -> float:
        """Normalized regret of what a search has found: 0 is the optimum, 1 the median point."""


@dataclass
class HartmannProblem:
    """A multi-fidelity Hartmann function, reported after 1, 3, 9, 27, 81 and 100 steps of a second each."""

    name: str
    function: Hartmann
    full_s: float = LONGEST
    space: Space = field(init=False)

    def __post_init__(self) -> None:
        self.space = Space(self.function.space)
        draws = np.random.default_rng(0).random((MEDIAN_POINTS, self.function.dimensions))
        names = list(self.function.space)
        self.median = float(np.median([self.function.regret(dict(zip(names, row, strict=True))) for row in draws]))

    def source(self, seed: int, *, every_step: bool = False) -> CurveSource:
        steps = range(1, LONGEST + 1) if every_step else RUNGS
        return _HartmannCurves(self.function, np.random.default_rng(seed), steps)

    def regret(self, reports: Sequence[Reported], points: dict[int, Point]) -> float:
        """That of the trial that people would take: the best reported among those that trained longest. It is judged by
        the function's true value, without noise."""
        longest = max(report.step for report in reports)
        best = min((report for report in reports if report.step == longest), key=lambda each: each.metrics[METRIC])
        return self.function.regret(dict(points[best.trial])) / self.median


@dataclass
class _HartmannCurves:
    function: Hartmann
    noise: np.random.Generator
    steps: Sequence[int]

    def curve(self, point: Point) -> list[Report]:
        values = [self.function.regret(dict(point), step, self.noise) for step in self.steps]
        return [Report(step, float(step), {METRIC: value}) for step, value in zip(self.steps, values, strict=True)]


@dataclass
class TableProblem:
    """Recorded curves, or a surrogate of them; the best recorded configuration is the optimum."""

    name: str
    space: Space
    curves: CurveSource
    full_s: float
    """Mean seconds of a full training."""
    best: float
    median: float
    """Median of the recorded configurations at their end."""
    error: SurrogateError | None
    """Error of the surrogate at the end of a training; None if the table has every point of the space."""

    def source(self, seed: int, *, every_step: bool = False) -> CurveSource:
        return self.curves

    def regret(self, reports: Sequence[Reported], points: dict[int, Point]) -> float:
        """Regret of the best value that any trial reported."""
        values = [report.metrics[METRIC] for report in reports if math.isfinite(report.metrics[METRIC])]
        return (min(values) - self.best) / (self.median - self.best) if values else 1.0


@dataclass
class _TableCurves:
    """Curves of a table with one metric, as a loss."""

    recorded: CurveSource
    metric: str
    sign: float

    def curve(self, point: Point) -> list[Report]:
        return [
            Report(report.step, report.elapsed_s, {METRIC: self.sign * report.metrics[self.metric]})
            for report in self.recorded.curve(point)
        ]


def table_problem(path: Path, metric: str, mode: str) -> TableProblem:
    """A problem from a table of learning curves; see ``sweeps.simulate.recorded_table.read_table``."""
    space, sign = read_space(path), 1.0 if mode == "min" else -1.0
    table = read_table(path, space, lambda path: None, [metric])
    forest = None if has_every_point(table, space) else ForestCurve(table, space, [metric])
    ends = [sign * trial.reports[-1].metrics[metric] for trial in table.whole]
    every = [sign * report.metrics[metric] for trial in table.trials for report in trial.reports]
    return TableProblem(
        path.stem,
        space,
        _TableCurves(forest or NearestCurve(table, space), metric, sign),
        float(np.mean([trial.reports[-1].elapsed_s for trial in table.whole])),
        float(np.nanmin(every)),
        float(np.nanmedian(ends)),
        forest.error if forest else None,
    )


def has_every_point(table: CurveTable, space: Space) -> bool:
    """Whether all points of a finite space were trained to their ends."""
    every = space.distributions.values()
    sizes = [len(each.choices) for each in every if isinstance(each, CategoricalDistribution | OrdinalDistribution)]
    return len(sizes) == len(space) and len({point_key(trial.point) for trial in table.whole}) == math.prod(sizes)


def hartmann_problems() -> list[HartmannProblem]:
    """Functions of 3 and 6 dimensions whose early values are good, bad, and misleading."""
    kinds = {"": (0.5, 0.1), " bad": (1.5, 1.0), " misleading": (2.5, 2.0)}
    return [
        HartmannProblem(f"mfh{dimensions}{kind}", Hartmann(dimensions, bias=bias, noise=noise))
        for dimensions in (3, 6)
        for kind, (bias, noise) in kinds.items()
    ]
