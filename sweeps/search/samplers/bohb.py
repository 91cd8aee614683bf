"""Sampler of BOHB: it learns from the values at the highest rung that enough trials have reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import optuna
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from sweeps.search.samplers.study_view import StudyViewSampler, completed


class RungSampler(StudyViewSampler):
    """Lets a sampler learn only from values at the same rung: the highest that enough trials have reached.

    With TPE and the Hyperband scheduler this is BOHB (Falkner et al., 2018, https://arxiv.org/abs/1807.01774).

    A rung is a step at which several trials were paused, were stopped or finished; the scheduler is not asked. A
    trial's value at a rung is the last one that it reported up to that step. The sampler does not see trials that were
    stopped before the rung, and sees those that have not reached it yet as running. With several objectives there are
    no values at rungs, and the sampler sees the study as it is.

    Example:
        >>> import optuna
        >>> from sweeps.search import RungSampler
        >>> sampler = RungSampler(optuna.samplers.TPESampler(constant_liar=True), enough=8)
        >>> study = optuna.create_study(sampler=sampler)
        >>> trial = study.ask()
        >>> 0 <= trial.suggest_float("x", 0, 1) <= 1
        True
    """

    def __init__(self, sampler: BaseSampler, enough: int):
        """
        Args:
            sampler: Makes the suggestions.
            enough: Minimum number of trials at a rung to learn from; in BOHB one more than the number of parameters.
        """
        super().__init__(sampler)
        self._enough = enough
        self._last_steps: dict[int, int] = {}
        self._at_rung: dict[tuple[int, TrialState], FrozenTrial] = {}
        """Trials as they are shown, also by their state: their constraints are known when they end."""
        self._rung: int | None = None

    def trials(self, study: optuna.Study) -> Sequence[FrozenTrial]:
        trials = study.get_trials(deepcopy=False)
        rung = self._highest_rung(trials)
        if rung != self._rung:
            self._rung, self._at_rung = rung, {}
        return trials if rung is None else [shown for trial in trials if (shown := self._as_of(rung, trial))]

    def _highest_rung(self, trials: Sequence[FrozenTrial]) -> int | None:
        """Return the highest step at which several trials ended or wait, and that enough trials have reached.

        If no two trials report at the same steps, the last step that enough have reached; None if too few have
        reported at all.
        """
        last_steps = [step for trial in trials if (step := self._last_step(trial)) is not None]
        if len(last_steps) < self._enough:
            return None
        reached_by_enough = sorted(last_steps, reverse=True)[self._enough - 1]
        several = [step for step, count in Counter(last_steps).items() if count > 1 and step <= reached_by_enough]
        return max(several, default=reached_by_enough)

    def _last_step(self, trial: FrozenTrial) -> int | None:
        """Return the last step that a trial reported; None if it reported nothing or failed."""
        if trial.number in self._last_steps:
            return self._last_steps[trial.number]
        if trial.state not in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING):
            return None
        last_step = max(trial.intermediate_values, default=None)
        if last_step is not None and trial.state.is_finished():
            self._last_steps[trial.number] = last_step
        return last_step

    def _as_of(self, rung: int, trial: FrozenTrial) -> FrozenTrial | None:
        """Return a trial with its value at the rung; None if it has none and has ended."""
        key = trial.number, trial.state
        if key in self._at_rung:
            return self._at_rung[key]
        last_step = self._last_step(trial)
        has_passed = last_step is not None and last_step >= rung
        if has_passed and (steps := [step for step in trial.intermediate_values if step <= rung]):
            self._at_rung[key] = completed(trial, trial.intermediate_values[max(steps)])
            return self._at_rung[key]
        return trial if trial.state is TrialState.RUNNING else None


class PredictedSampler(RungSampler):
    """Deprecated name, kept for code of an earlier release; ``CurveSampler`` has replaced its sampling by predicted
    values."""

    def __init__(self, sampler: BaseSampler, enough: int, seed: int):
        """
        Args:
            sampler: Makes the suggestions.
            enough: Minimum number of trials at a rung to learn from.
            seed: Ignored.
        """
        super().__init__(sampler, enough)
