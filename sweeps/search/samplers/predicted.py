"""Sampler that learns from predicted values at the highest rung, as far as earlier values tell them."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import optuna
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from sweeps.search.samplers.study_view import StudyViewSampler, completed

MIN_PAIRS = 4
"""Fewest trials with values at two rungs, for the later value to be predicted from the earlier one."""
PRIOR_PAIRS = 1.0
"""Weight of the assumption that an earlier value tells nothing, in trials of average spread: slopes of few pairs are
shrunk."""
OUTLIER = 3.0
"""Distance from the quartiles, in interquartile ranges, to which values are clipped: one diverged trial would
otherwise decide a slope."""

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Link:
    """Linear prediction of the value at the next rung from that at a rung."""

    next: int
    """Step of the next rung."""
    intercept: float
    slope: float
    explained: float
    """Share of the variance at the next rung that the prediction explains among all trials that reached this one."""


class PredictedSampler(StudyViewSampler):
    """Lets a sampler learn from each trial's predicted value at the highest rung that enough trials have reached.

    Between two rungs the later value is predicted from the earlier one by linear regression over the trials that have
    both. A scheduler lets only the best go on, by their earlier values; that biases a correlation, but not the
    regression's slope, so the share of variance that it explains is computed for the spread of all trials at the
    earlier rung. A trial that was stopped is shown with its predicted value, with a probability of the share that is
    explained from its last rung to the highest one (the product over the rungs between). So the sampler learns from
    nearly all trials where early values tell the late ones, as TPE does, and only from those at the highest rung where
    they tell nothing, as BOHB does; which it is, is measured while the search runs.

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

    def trials(self, study: optuna.Study) -> Sequence[FrozenTrial]:
        trials = study.get_trials(deepcopy=False)
        reporting = [trial for trial in trials if trial.state is not TrialState.FAIL and trial.intermediate_values]
        links = _links([trial.intermediate_values for trial in reporting], _rungs(reporting))
        end = self._end(reporting, links)
        if end is None:
            self.trust = {}
            return trials
        self.trust = {end: 1.0} | {rung: _predict(links, rung, end, 0.0)[1] for rung in links if rung < end}
        return [shown for trial in trials if (shown := self._shown(trial, links, end)) is not None]

    def _end(self, reporting: Sequence[FrozenTrial], links: dict[int, Link]) -> int | None:
        """The highest rung that enough trials have reached and that is predicted from the lower ones; None if too few
        have reached any."""
        rungs = [min(links), *(link.next for link in links.values())] if links else _rungs(reporting)[:1]
        reached = {rung: sum(rung in trial.intermediate_values for trial in reporting) for rung in rungs}
        return max((rung for rung, count in reached.items() if count >= self._enough), default=None)

    def _shown(self, trial: FrozenTrial, links: dict[int, Link], end: int) -> FrozenTrial | None:
        """A trial as the sampler shall see it; None if it shall not."""
        values = trial.intermediate_values
        waits = trial if trial.state is TrialState.RUNNING else None
        if trial.state is TrialState.FAIL:
            return None
        if end in values:
            return completed(trial, values[end])
        rung = max((rung for rung in links if rung in values and rung < end), default=None)
        if rung is None:
            return waits
        value, explained = _predict(links, rung, end, values[rung])
        if explained < 0.5 and waits is not None:  # its own later values will tell more
            return waits
        is_shown = random.Random(f"{self._seed}/{trial.number}/trust").random() <= explained
        return completed(trial, value) if is_shown else waits


def _rungs(trials: Sequence[FrozenTrial]) -> list[int]:
    """Steps at which several trials ended or wait, ascending; if there are none, the last step that any reported."""
    last = Counter(max(trial.intermediate_values) for trial in trials)
    return sorted(step for step, count in last.items() if count > 1) or sorted(last)[-1:]


def _links(curves: Sequence[dict[int, float]], rungs: Sequence[int]) -> dict[int, Link]:
    """Predictions from each rung to the next, from the first one on as far as enough trials have both."""
    links: dict[int, Link] = {}
    for rung, following in itertools.pairwise(rungs):
        pairs = np.array([(curve[rung], curve[following]) for curve in curves if rung in curve and following in curve])
        if len(pairs) < MIN_PAIRS:
            break
        every = _clipped(np.array([curve[rung] for curve in curves if rung in curve]))
        links[rung] = _link(_clipped(pairs[:, 0]), _clipped(pairs[:, 1]), float(every.var()), following)
    return links


def _link(earlier: Vector, later: Vector, spread: float, following: int) -> Link:
    """Regression of later on earlier values, for trials whose earlier values have the variance ``spread``."""
    centered = earlier - earlier.mean()
    slope = float(centered @ (later - later.mean()) / (centered @ centered + PRIOR_PAIRS * spread + 1e-300))
    intercept = float(later.mean() - slope * earlier.mean())
    residual = float(((later - intercept - slope * earlier) ** 2).sum() / (len(later) - 2))
    told = slope * slope * spread
    return Link(following, intercept, slope, told / (told + residual) if told + residual > 0 else 0.0)


def _clipped(values: Vector) -> Vector:
    low, high = np.quantile(values, (0.25, 0.75))
    margin = OUTLIER * (high - low)
    return np.asarray(values if margin == 0 else np.clip(values, low - margin, high + margin))


def _predict(links: dict[int, Link], rung: int, end: int, value: float) -> tuple[float, float]:
    """Predicted value at a later rung, and the share of variance that is explained."""
    explained = 1.0
    while rung < end:
        link = links[rung]
        value, explained, rung = link.intercept + link.slope * value, explained * link.explained, link.next
    return value, explained
