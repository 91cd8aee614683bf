"""BOHB's model: learn from the values at the highest rung that enough trials have reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import optuna
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from sweeps.search.samplers.study_view import StudyViewSampler, completed


class RungSampler(StudyViewSampler):
    """Shows a sampler (TPE, for BOHB: Falkner et al., 2018, https://arxiv.org/abs/1807.01774) only values that were
    measured after the same training: at the highest rung that enough trials have reached.

    A rung is a step at which several trials wait, were stopped or finished; so the scheduler need not be asked. A
    trial's value at a rung is what it last reported there. Trials that were stopped before are not shown, and those
    that still run towards it are shown as running.

    With several objectives there are no values of rungs, and the study is shown as it is.

    Example:
        >>> sampler = RungSampler(optuna.samplers.TPESampler(constant_liar=True), enough=8)
        >>> OptunaSearcher(space, metric="loss", mode="min", sampler=sampler)
    """

    def __init__(self, sampler: BaseSampler, enough: int):
        """
        Args:
            sampler: Makes the suggestions.
            enough: Trials that must have reached a rung, before it is learned from; BOHB's own is one more than the
                number of parameters.
        """
        super().__init__(sampler)
        self._enough = enough
        self._last_steps: dict[int, int] = {}
        self._at_rung: dict[int, FrozenTrial] = {}
        self._rung: int | None = None

    def trials(self, study: optuna.Study) -> Sequence[FrozenTrial]:
        trials = study.get_trials(deepcopy=False)
        rung = self._highest_rung(trials)
        if rung != self._rung:
            self._rung, self._at_rung = rung, {}
        return trials if rung is None else [shown for trial in trials if (shown := self._show_at(rung, trial))]

    def _highest_rung(self, trials: Sequence[FrozenTrial]) -> int | None:
        """The highest step at which several trials are and that enough have reached; where trials report at steps of
        their own, the last that enough have reached; None if not enough have reported at all."""
        last_steps = [step for trial in trials if (step := self._last_step(trial)) is not None]
        if len(last_steps) < self._enough:
            return None
        reached_by_enough = sorted(last_steps, reverse=True)[self._enough - 1]
        several = [step for step, count in Counter(last_steps).items() if count > 1 and step <= reached_by_enough]
        return max(several, default=reached_by_enough)

    def _last_step(self, trial: FrozenTrial) -> int | None:
        """None for a trial that has no values, or whose values are those of a failure."""
        if trial.number in self._last_steps:
            return self._last_steps[trial.number]
        if trial.state not in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING):
            return None
        last_step = max(trial.intermediate_values, default=None)
        if last_step is not None and trial.state.is_finished():
            self._last_steps[trial.number] = last_step
        return last_step

    def _show_at(self, rung: int, trial: FrozenTrial) -> FrozenTrial | None:
        if trial.number in self._at_rung:
            return self._at_rung[trial.number]
        last_step = self._last_step(trial)
        if last_step is not None and last_step >= rung:
            step = rung if rung in trial.intermediate_values else max(s for s in trial.intermediate_values if s <= rung)
            self._at_rung[trial.number] = completed(trial, trial.intermediate_values[step])
            return self._at_rung[trial.number]
        return trial if trial.state is TrialState.RUNNING else None
