"""Sampler that learns from predicted values at the highest rung, as far as earlier values tell them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import optuna
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from sweeps.search.rung_links import Link, fit_links, predict
from sweeps.search.samplers.study_view import StudyViewSampler, completed, rungs_of, told_steps
from sweeps.search.schedulers.decisions import is_running


class PredictedSampler(StudyViewSampler):
    """Lets a sampler learn from each trial's predicted value at the highest rung that enough trials have reached.

    Between two rungs the later value is predicted from the earlier one by linear regression over the trials that have
    both. A scheduler lets only the best go on, by their earlier values; that biases a correlation, but not the
    regression's slope, so the share of variance that it explains is computed for the spread of all trials at the
    earlier rung. A trial that was stopped is shown with its predicted value, with a probability of the share that is
    explained from its last rung to the highest one (the product over the rungs between). So the sampler learns from
    nearly all trials where early values tell the late ones, as TPE does, and only from those at the highest rung where
    they tell nothing, as BOHB does; which it is, is measured while the search runs. A paused trial is
    shown like a stopped one.

    With several objectives there are no values at rungs, and the sampler sees the study as it is.

    Example:
        >>> import optuna
        >>> from sweeps.search import PredictedSampler
        >>> sampler = PredictedSampler(optuna.samplers.TPESampler(constant_liar=True), enough=8, seed=0)
        >>> study = optuna.create_study(sampler=sampler)
        >>> 0 <= study.ask().suggest_float("x", 0, 1) <= 1
        True
    """

    def __init__(self, sampler: BaseSampler, enough: int, seed: int):
        """
        Args:
            sampler: Makes the suggestions.
            enough: Fewest trials at the rung whose values are predicted.
            seed: Seed of the choice of the trials that are shown.
        """
        super().__init__(sampler)
        self._enough, self._seed = enough, seed
        self.trust: dict[int, float] = {}
        """Share of the variance at the highest rung that each rung's values explain, by step."""
        self._draws: dict[int, float] = {}

    def trials(self, study: optuna.Study) -> Sequence[FrozenTrial]:
        trials = study.get_trials(deepcopy=False)
        reporting = [trial for trial in trials if trial.state is not TrialState.FAIL and trial.intermediate_values]
        links = fit_links([trial.intermediate_values for trial in reporting], _rungs(reporting))
        end = self._end(reporting, links)
        if end is None:
            self.trust = {}
            return trials
        lines = {rung: _Line.between(links, rung, end) for rung in sorted(links, reverse=True) if rung < end}
        self.trust = {end: 1.0} | {rung: line.explained for rung, line in lines.items()}
        return [shown for trial in trials if (shown := self._shown(trial, lines, end)) is not None]

    def _end(self, reporting: Sequence[FrozenTrial], links: dict[int, Link[int]]) -> int | None:
        """The highest rung that enough trials have reached and that is predicted from the lower ones; None if too few
        have reached any."""
        rungs = [min(links), *(link.next for link in links.values())] if links else _rungs(reporting)[:1]
        reached = {rung: sum(rung in trial.intermediate_values for trial in reporting) for rung in rungs}
        return max((rung for rung, count in reached.items() if count >= self._enough), default=None)

    def _shown(self, trial: FrozenTrial, lines: dict[int, _Line], end: int) -> FrozenTrial | None:
        """A trial as the sampler shall see it; None if it shall not. ``lines`` begin with the highest rung."""
        values = trial.intermediate_values
        # A paused trial, shown as a running one, would keep TPE away from its point for as long as it waits.
        waits = trial if is_running(trial) else None
        if trial.state is TrialState.FAIL:
            return None
        if end in values:
            return completed(trial, values[end])
        rung = next((rung for rung in lines if rung in values), None)
        if rung is None:
            return waits
        line = lines[rung]
        if line.explained < 0.5 and waits is not None:  # its own later values will tell more
            return waits
        is_shown = self._draw(trial.number) <= line.explained
        return completed(trial, line.intercept + line.slope * values[rung]) if is_shown else waits

    def _draw(self, number: int) -> float:
        """The random number of a trial, from 0 to 1; always the same."""
        if number not in self._draws:
            self._draws[number] = random.Random(f"{self._seed}/{number}/trust").random()
        return self._draws[number]


def _rungs(reporting: Sequence[FrozenTrial]) -> list[int]:
    return rungs_of(told_steps(trial, trial.intermediate_values) for trial in reporting)


class _Line(NamedTuple):
    """Prediction of the value at the highest rung from that at another one, over the rungs between."""

    intercept: float
    slope: float
    explained: float
    """Share of the variance at the highest rung that it explains."""

    @classmethod
    def between(cls, links: dict[int, Link[int]], rung: int, end: int) -> _Line:
        """The line from a rung to the highest one."""
        at_zero, at_one = predict(links, rung, end, 0.0), predict(links, rung, end, 1.0)
        return cls(at_zero.value, at_one.value - at_zero.value, at_zero.explained)
