"""Sampler that learns from the best and the newest trials of a long study."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import optuna
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from sweeps.search.samplers.limited_history import rank
from sweeps.search.samplers.study_view import StudyViewSampler

MOST_TRIALS = 300
"""Maximum number of finished trials that the sampler sees."""
BEST = 100
"""Number of the best trials among those that the sampler sees; the others are the newest."""


class BestAndNewestSampler(StudyViewSampler):
    """Shows a sampler the best and the newest finished trials of a long study, and all others that have not finished.

    The fit of a Gaussian process takes time with the cube of its number of trials: seconds for each suggestion after
    1,000 trials. The newest trials are shown, since the process would otherwise suggest their points again. With
    several objectives the sampler sees the study as it is, since there is no order by which some are the best.

    Example:
        >>> import optuna
        >>> from sweeps.search.samplers.best_and_newest import BestAndNewestSampler
        >>> study = optuna.create_study(sampler=BestAndNewestSampler(optuna.samplers.RandomSampler(seed=0)))
        >>> 0 <= study.ask().suggest_float("x", 0, 1) <= 1
        True
    """

    def __init__(self, sampler: BaseSampler, most: int = MOST_TRIALS, best: int = BEST):
        """
        Args:
            sampler: Makes the suggestions.
            most: Maximum number of finished trials that it sees.
            best: Best trials among them.
        """
        super().__init__(sampler)
        self._most, self._best = most, best

    def trials(self, study: optuna.Study) -> Sequence[FrozenTrial]:
        trials = study.get_trials(deepcopy=False)
        finished = [trial for trial in trials if trial.state is TrialState.COMPLETE]
        if len(finished) <= self._most or len(study.directions) > 1:
            return trials
        sign = 1.0 if study.direction is StudyDirection.MINIMIZE else -1.0
        best = heapq.nsmallest(self._best, finished, key=lambda trial: rank(trial, sign))
        shown = {trial.number for trial in (*best, *finished[self._best - self._most :])}
        return [trial for trial in trials if trial.state is not TrialState.COMPLETE or trial.number in shown]
