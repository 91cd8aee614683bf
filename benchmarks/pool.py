"""Tables as pools: every suggestion becomes a configuration of the table that the search has not used, and its values
are the recorded ones. So a method is compared without an emulator between it and the recorded trainings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from curve_files import read_space
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial
from search_problems import METRIC

from sweeps.constants import TIME_OF_REPORT
from sweeps.search.samplers.candidates import Candidates, CandidateSource, Parameters
from sweeps.search.samplers.qmc import unconditional
from sweeps.search.samplers.study_view import WrappedSampler
from sweeps.search.unit_cube import UnitCube
from sweeps.simulate.recorded_table import RecordedTrial, Report, read_table
from sweeps.simulate.simulation import Reported
from sweeps.space.space import Point, Space


@dataclass
class PoolProblem:
    """The configurations of a table that were trained to the end; the best of them is the optimum."""

    name: str
    space: Space
    trials: list[RecordedTrial]
    """The configurations, whose one metric is a loss."""
    full_s: float
    """Mean seconds of a full training."""
    best: float
    median: float
    """Median of the configurations at their end."""

    def source(self, seed: int, *, every_step: bool = False) -> Pool:
        """All configurations, for one search."""
        return Pool(self.space, self.trials)

    def regret(self, reports: Sequence[Reported], points: dict[int, Point]) -> float:
        """Regret of the best value that any trial reported."""
        values = [report.metrics[METRIC] for report in reports if math.isfinite(report.metrics[METRIC])]
        return (min(values) - self.best) / (self.median - self.best) if values else 1.0


class Pool:
    """Configurations of a table, each of which a search may train once."""

    def __init__(self, space: Space, trials: Sequence[RecordedTrial]):
        self.cube, self._trials = UnitCube(space), trials
        self._vectors = self.cube.matrix([trial.point for trial in trials])
        self._is_used = np.zeros(len(trials), dtype=bool)

    def nearest(self, point: Point) -> Point:
        """The nearest unused configuration in the unit cube."""
        return self._trials[self._place(point)].point

    def curve(self, point: Point) -> list[Report]:
        """The recorded curve of the nearest unused configuration, which is used from now on."""
        place = self._place(point)
        self._is_used[place] = True
        return self._trials[place].reports

    def unused(self) -> list[Point]:
        """The configurations that are left."""
        return [self._trials[place].point for place in np.flatnonzero(~self._is_used)]

    def _place(self, point: Point) -> int:
        distances = ((self._vectors - self.cube.vector(point)) ** 2).sum(axis=1)
        return int(np.argmin(np.where(self._is_used, np.inf, distances)))


class PoolSampler(WrappedSampler):
    """Replaces what an Optuna sampler suggests by the nearest unused configuration, so that the sampler learns from
    what was trained; for spaces without conditions and choices."""

    def __init__(self, sampler: BaseSampler, space: Space, pool: Pool):
        super().__init__(sampler)
        self._space, self._pool = space, pool

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        self._own = super().infer_relative_search_space(study, trial)
        return unconditional(self._space)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        suggested = super().sample_relative(study, trial, self._own) if self._own else {}
        for name, distribution in search_space.items():
            if name not in suggested:
                suggested[name] = super().sample_independent(study, trial, name, distribution)
        return dict(self._pool.nearest(suggested))


class PoolCandidates(CandidateSource):
    """Candidates of ``CurveSampler``: all unused configurations of a pool, of which it takes the most promising."""

    def __init__(self, pool: Pool):
        self._pool = pool

    def random(self, number: int, seed: int) -> Candidates:
        """All of them."""
        points = [dict(point) for point in self._pool.unused()]
        return Candidates(points, self._pool.cube.matrix(points))

    def near(self, given: Sequence[Parameters], widths: Sequence[float], number: int, seed: int) -> Candidates:
        """None: all are candidates already."""
        return Candidates([], np.empty((0, self._pool.cube.matrix([{**given[0]}]).shape[1])))


def pool_problem(path: Path, metric: str, mode: str, start_cost: float) -> PoolProblem:
    """A problem from a table of learning curves (see ``sweeps.simulate.recorded_table.read_table``), whose space has
    ranges of numbers alone. The start of a trial costs this part of the mean time of a full training."""
    space, sign = read_space(path), 1.0 if mode == "min" else -1.0
    table = read_table(path, space, lambda path: None, [metric])
    start_s = start_cost * float(np.mean([trial.reports[-1].elapsed_s for trial in table.whole]))
    trials = [RecordedTrial(trial.point, _timed(trial.reports, start_s, metric, sign)) for trial in table.whole]
    ends = [trial.reports[-1].metrics[METRIC] for trial in trials]
    every = [report.metrics[METRIC] for trial in trials for report in trial.reports]
    seconds = float(np.mean([trial.reports[-1].elapsed_s for trial in trials]))
    return PoolProblem(path.stem, space, trials, seconds, float(np.nanmin(every)), float(np.nanmedian(ends)))


def _timed(reports: Sequence[Report], start_s: float, metric: str, sign: float) -> list[Report]:
    """Reports of a training that starts in these seconds, with the times that ``FreezeThaw`` measures."""
    before, timed = 0.0, []
    for each in reports:
        now = start_s + each.elapsed_s
        timed.append(Report(each.step, now, {METRIC: sign * each.metrics[metric], TIME_OF_REPORT: now - before}))
        before = now
    return timed
