"""Sampler that learns from a limited number of trials, so that suggestions do not become slower in a long search."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Collection, Sequence
from itertools import islice

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from sweeps.compat.optuna import StudyView
from sweeps.search.samplers.study_view import StudyViewSampler

Rank = tuple[float, ...]
Choose = Callable[[Sequence[int], int], Sequence[int]]
"""Chooses as many of some trials, given in the order of their numbers."""
ENDED = (TrialState.COMPLETE, TrialState.PRUNED)


def evenly(numbers: Sequence[int], count: int) -> Sequence[int]:
    """Choose trials evenly over the course of a study."""
    return [numbers[index * len(numbers) // count] for index in range(count)]


def newest(numbers: Sequence[int], count: int) -> Sequence[int]:
    """Choose the newest trials of a study."""
    return numbers[len(numbers) - count :]


class LimitedHistorySampler(StudyViewSampler):
    """Shows a sampler the best ended trials of a long study and a part of the others, and all trials that run.

    TPE computes a density from all trials that are not among the best, for each suggestion: without a limit, the time
    of a search grows with the square of its number of trials, and after 10,000 trials each suggestion takes a fifth of
    a second. A density needs only some hundreds of points. The fit of a Gaussian process takes time with the cube of
    its number of trials. With several objectives the sampler sees the study as it is, since there is no order by which
    some are the best.

    Example:
        >>> import optuna
        >>> from sweeps.search.samplers.limited_history import LimitedHistorySampler
        >>> sampler = LimitedHistorySampler(optuna.samplers.TPESampler(seed=0), most=400, best=50)
        >>> study = optuna.create_study(sampler=sampler)
        >>> 0 <= study.ask().suggest_float("x", 0, 1) <= 1
        True
    """

    def __init__(
        self,
        sampler: BaseSampler,
        *,
        most: int,
        best: int,
        others: Choose = evenly,
        states: Collection[TrialState] = ENDED,
    ):
        """
        Args:
            sampler: Makes the suggestions.
            most: Maximum number of ended trials that it sees.
            best: Best trials among them.
            others: Chooses the others.
            states: States of the ended trials that the sampler learns from; trials of other states are not limited.
        """
        super().__init__(sampler)
        self._most, self._best, self._others, self._states = most, best, others, states
        self._ended: dict[int, FrozenTrial] = {}
        """The study's ended trials by number, in the order in which they were seen."""
        self._ranked: list[tuple[Rank, int]] = []
        """Ranks and numbers of those ended trials that were ranked so far, best first."""
        self._kinds: dict[tuple[str, ...], FrozenTrial] = {}
        """The first ended trial of each set of parameters."""

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Show only one ended trial of each set of parameters, from which a sampler derives which occur together."""
        self._view = None
        self._take_ended(study.get_trials(deepcopy=False))
        kinds = sorted(self._kinds.values(), key=lambda each: each.number)
        return self.sampler.infer_relative_search_space(StudyView(study, kinds), trial)

    def trials(self, study: optuna.Study) -> Sequence[FrozenTrial]:
        trials = study.get_trials(deepcopy=False)
        self._take_ended(trials)
        if len(self._ended) <= self._most or len(study.directions) > 1:
            return trials
        sign = 1.0 if study.direction is StudyDirection.MINIMIZE else -1.0
        for number, trial in islice(self._ended.items(), len(self._ranked), None):
            bisect.insort(self._ranked, (rank(trial, sign), number))
        best = {number for _, number in self._ranked[: self._best]}
        others = sorted(self._ended.keys() - best)
        shown = best.union(self._others(others, self._most - len(best)))
        return [trial for trial in trials if trial.state not in self._states or trial.number in shown]

    def _take_ended(self, trials: Sequence[FrozenTrial]) -> None:
        """Add the trials that have ended since the last call; add all if the study is another one or the shown earlier
        sweeps have changed."""
        ended = [trial for trial in trials if trial.state in self._states]
        new = [trial for trial in ended if self._ended.get(trial.number) is not trial]
        if len(self._ended) + len(new) != len(ended):
            self._ended, self._ranked, self._kinds, new = {}, [], {}, ended
        for trial in new:
            self._ended[trial.number] = trial
            kind = tuple(trial.distributions)
            if kind not in self._kinds or trial.number < self._kinds[kind].number:
                self._kinds[kind] = trial


def rank(trial: FrozenTrial, sign: float) -> Rank:
    """Return the rank of an ended trial in the order in which TPE chooses the best: complete trials by value, then
    pruned ones by last step and value, then those that violate a constraint.

    Args:
        sign: 1 to minimise, -1 to maximise.
    """
    if any(excess > 0 for excess in trial.constraints.values()):
        return (2.0,)
    if trial.state is TrialState.COMPLETE:
        assert trial.value is not None
        return (0.0, sign * trial.value)
    if not trial.intermediate_values:
        return (1.0, math.inf)
    step, value = max(trial.intermediate_values.items())
    return (1.0, -step, math.inf if math.isnan(value) else sign * value)
