"""Learning curves of a study's trials, with their values at common rungs."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from sweeps.config.objectives import Values
from sweeps.constants import REASON
from sweeps.search.curve_model.observations import Array
from sweeps.search.reported_values import reported_values, violates_limit
from sweeps.search.samplers.study_view import told_steps

MOST_RUNGS = 7
"""Maximum number of rungs: the model takes longer with each value."""
SHARED = 0.5
"""Minimum share of the trials' ends and decisions that must be at steps shared by several trials, for these steps to be
rungs."""
FACTOR, EARLIEST = 3, 0.1
"""Ratio of successive rungs, and share of the steps that may lie before the first rung, if trials have too few steps in
common."""
END = 10**15
"""The last rung if trials have no steps in common; every trial that trained to its end has reached it, regardless of
its length."""
NO_STEP = -1
"""The only rung if no trial reports."""


class Curves(NamedTuple):
    """Curves of the trials that have a value, or whose training diverged or broke a limit."""

    trials: list[FrozenTrial]
    values: Array
    """Values of shape ``[objectives, trials, rungs]``, NaN where there are none; smaller is better."""
    is_bad: npt.NDArray[np.bool_]
    rungs: list[int]
    """Steps of the rungs, ascending."""


class StudyCurves:
    """Reads the curves of a study repeatedly. Curves of ended trials are cached, since they do not change."""

    def __init__(self) -> None:
        self._ended: dict[int, _Told | None] = {}
        self._rows: dict[int, list[list[float]]] = {}
        self._rungs: list[int] = []
        """The rungs of ``_rows``."""

    def read(self, study: optuna.Study) -> Curves:
        """Return the current curves."""
        told = [each for each in map(self._told_by, study.get_trials(deepcopy=False)) if each is not None]
        signs = [1.0 if direction is StudyDirection.MINIMIZE else -1.0 for direction in study.directions]
        rungs = common_rungs([each.steps for each in told])
        if rungs != self._rungs:
            self._rungs, self._rows = rungs, {}
        rows = [self._row(each, signs) for each in told]
        values = np.array(rows).reshape(len(told), len(signs), len(rungs)).swapaxes(0, 1)
        bad = np.array([is_bad(each.trial) for each in told], dtype=bool)
        seen = np.flatnonzero(bad | np.isfinite(values[0]).any(axis=1))
        return Curves([told[index].trial for index in seen], values[:, seen], bad[seen], rungs)

    def _told_by(self, trial: FrozenTrial) -> _Told | None:
        if trial.number in self._ended:
            return self._ended[trial.number]
        reports = reported_values(trial)
        told = _Told(trial, reports, told_steps(trial, reports)) if _has_values(trial, reports) else None
        if _is_kept(trial):
            self._ended[trial.number] = told
        return told

    def _row(self, told: _Told, signs: Sequence[float]) -> list[list[float]]:
        number = told.trial.number
        if number in self._rows:
            return self._rows[number]
        by_objective = zip(signs, told.at(self._rungs, len(signs)), strict=True)
        row = [[sign * value for value in values] for sign, values in by_objective]
        if _is_kept(told.trial):
            self._rows[number] = row
        return row


class _Told(NamedTuple):
    """Trial that has reported values, or that diverged or broke a limit before it reported any."""

    trial: FrozenTrial
    reports: Mapping[int, Values]
    steps: set[int]
    """Steps at which the trial ended, waits or was judged (``told_steps``)."""

    def at(self, rungs: Sequence[int], objectives: int) -> list[tuple[float, ...]]:
        """Return the values of each objective at the rungs: the last ones reported up to each rung that the trial has
        reached. A trial that trained to its end before the last rung has its final values there."""
        steps = sorted(self.reports)
        known: list[Values] = []
        nothing = (math.nan,) * objectives
        for rung in rungs:
            before = bisect_right(steps, rung)
            known.append(self.reports[steps[before - 1]] if before and steps[-1] >= rung else nothing)
        if self.trial.state is TrialState.COMPLETE and not (steps and steps[-1] > rungs[-1]):
            known[-1] = self.reports[steps[-1]] if steps else tuple(self.trial.values)
        return [*zip(*known, strict=True)]


def common_rungs(told: Sequence[set[int]]) -> list[int]:
    """Return the steps at which trials are compared, ascending.

    These are the steps at which several trials ended, wait or were judged; if there are many, some of them in equal
    ratios. If most trials have no such step in common (each has its own number of steps), they are powers of
    ``FACTOR``, and ``END``.

    Args:
        told: Steps at which each trial ended, waits or was judged (``told_steps``).
    """
    found = Counter(step for each in told for step in each)
    if not found:
        return [NO_STEP]
    shared = [step for step, count in found.items() if count > 1]
    if sum(found[step] for step in shared) >= SHARED * found.total():
        return spaced(sorted(shared), MOST_RUNGS)
    early = sorted(found.elements())[int(EARLIEST * found.total())]
    first, last = (math.floor(math.log(max(step, 1)) / math.log(FACTOR) + 1e-9) for step in (early, max(found)))
    return [*(FACTOR**power for power in range(max(first, last - MOST_RUNGS + 2), last + 1)), END]


def spaced(steps: Sequence[int], count: int) -> list[int]:
    """Select up to ``count`` of the ascending steps, in about equal ratios, including the first and the last."""
    if len(steps) <= count:
        return [*steps]
    wanted = np.linspace(math.log1p(steps[0]), math.log1p(steps[-1]), count)
    logarithms = np.log1p(np.array(steps, dtype=float))
    return [steps[index] for index in sorted({int(np.argmin(np.abs(logarithms - each))) for each in wanted})]


def is_bad(trial: FrozenTrial) -> bool:
    """Whether a trial violated a limit, or ended with a value that is not finite."""
    if trial.state is TrialState.FAIL:
        return str(trial.user_attrs.get(REASON, "")).endswith(("=nan", "=inf", "=-inf"))
    return violates_limit(trial)


def _has_values(trial: FrozenTrial, reports: Mapping[int, Values]) -> bool:
    if trial.state is TrialState.FAIL:
        return is_bad(trial)
    return bool(reports) or (trial.state is TrialState.COMPLETE and trial.values is not None)


def _is_kept(trial: FrozenTrial) -> bool:
    """Whether a trial has ended and belongs to this study instead of an earlier sweep."""
    return trial.number >= 0 and trial.state.is_finished()
