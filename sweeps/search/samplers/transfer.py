"""Warm start: samplers that learn from earlier sweeps, weighted by how well these predict the current one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from sweeps.search.samplers.earlier_sweep import EarlierSweep
from sweeps.search.samplers.qmc import unconditional
from sweeps.search.samplers.reseeded import ReseededSampler
from sweeps.search.samplers.study_view import StudyViewSampler
from sweeps.search.unit_cube import UnitCube, Vector
from sweeps.space.space import Point, Space

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestRegressor

NUM_RETRIED, BEST_SHARE = 3, 0.25
"""Number of earlier points that are tried again first, and the share of the best points from which they are chosen."""
MIN_DISTANCE = 0.1
"""Distance in the unit cube below which only one of two points is tried again."""
MIN_PAIRS = 5
"""Minimum number of this sweep's trials from which a trust is computed."""
HALVED_AFTER = 20
"""Number of this sweep's trials after which the trust is halved; after twice as many, a third is left, and so on."""
MAX_SHOWN = 200
"""Maximum number of trials of one earlier sweep that a sampler learns from."""
MIN_SOURCES = 10
"""Minimum number of earlier trials with which CMA-ES can start: it uses the best tenth."""
IGNORED_AFTER = 500
"""Number of this sweep's trials after which earlier sweeps are ignored."""


def points_to_retry(earlier: Sequence[EarlierSweep], space: Space) -> list[Point]:
    """Return a few of the best distinct points of earlier sweeps, taken from each in turn, to be tried first.

    Their values in this sweep show how well the earlier sweeps predict it.

    Args:
        earlier: The earlier sweeps.
        space: This sweep's space.

    Returns:
        At most three points; for ``points`` of ``OptunaSearcher``.

    Raises:
        ValueError: A value is not a number where the space has a range.

    Example:
        >>> from sweeps.search import EarlierSweep, FloatDistribution, Space, points_to_retry
        >>> space = Space({"x": FloatDistribution(type="float", low=0, high=1)})
        >>> points = [{"x": 0.5}, {"x": 0.52}, {"x": 0.8}, {"x": 0.1}]
        >>> points_to_retry([EarlierSweep("earlier", points * 2, [0.1, 0.2, 0.3, 0.4] * 2)], space)
        [{'x': 0.5}]
    """
    unit, chosen, vectors = UnitCube(space), list[Point](), list[Vector]()
    waiting = [sweep.points[: math.ceil(BEST_SHARE * len(sweep.points))] for sweep in earlier]
    while len(chosen) < NUM_RETRIED and any(waiting):
        for points in waiting:
            while points and len(chosen) < NUM_RETRIED:
                point = points.pop(0)
                vector = unit.vector(point)
                if all(float(np.linalg.norm(vector - other)) > MIN_DISTANCE for other in vectors):
                    chosen.append(point)
                    vectors.append(vector)
                    break
    return chosen


def distinct_best(sweep: EarlierSweep, number: int, space: Space) -> list[Point]:
    """Return the best points of an earlier sweep, without similar ones, up to the requested number.

    A search that has converged has many points near its best one, which add little information.

    Args:
        sweep: The sweep.
        number: Maximum number of points.
        space: Space of the points.

    Returns:
        The points, the best first; if too few differ, followed by points that are similar to these.

    Raises:
        ValueError: A value is not a number where the space has a range.

    Example:
        >>> from sweeps.search import EarlierSweep, FloatDistribution, Space
        >>> from sweeps.search.samplers.transfer import distinct_best
        >>> space = Space({"x": FloatDistribution(type="float", low=0, high=1)})
        >>> distinct_best(EarlierSweep("earlier", [{"x": 0.5}, {"x": 0.51}, {"x": 0.1}], [0.1, 0.2, 0.3]), 2, space)
        [{'x': 0.5}, {'x': 0.1}]
    """
    unit, vectors = UnitCube(space), list[Vector]()
    chosen, similar = list[Point](), list[Point]()
    for point in sweep.points:
        vector = unit.vector(point)
        if all(float(np.linalg.norm(vector - other)) > MIN_DISTANCE for other in vectors):
            chosen.append(point)
            vectors.append(vector)
        elif point not in [*chosen, *similar]:
            similar.append(point)
    return [*chosen, *similar][:number]


class EarlierTrials:
    """Trials of earlier sweeps, weighted by how well they predict this one.

    Each earlier sweep has a model (a random forest fitted to the ranks of its trials' values) that predicts the rank of
    this sweep's points. Its *trust* is the rank correlation between the predictions and this sweep's trials, less one
    standard error (by Fisher's transformation): it is zero with few trials, or where the two do not agree.

    The sampler learns from the earlier sweep's trials with a probability of the trust, which fades with the number of
    this sweep's own trials. So a part of the suggestions is free of the earlier sweep, and shows where it misleads.
    (Measured: with a share of the trials by the trust in every suggestion, some searches stayed where a misleading
    sweep had been good.) Values are converted to this sweep's scale by isotonic regression on the predicted ranks.

    RGPE (Feurer et al., 2018, https://arxiv.org/abs/1802.02219) weights Gaussian processes of earlier tasks by how well
    they rank the observations of the new one. The same idea is used here for any sampler that learns from a list of
    trials.

    Example:
        >>> from sweeps.search import EarlierSweep, EarlierTrials, FloatDistribution, Space
        >>> space = Space({"x": FloatDistribution(type="float", low=0, high=1)})
        >>> earlier = EarlierTrials([EarlierSweep("earlier", [{"x": 0.5}], [0.1])], space, "min", seed=0)
        >>> earlier.trusts([])
        [0.0]
    """

    def __init__(
        self, sweeps: Sequence[EarlierSweep], space: Space, mode: str, seed: int, *, last_counts: bool = False
    ):
        """
        Args:
            sweeps: The earlier sweeps; their points lie in the space.
            space: This sweep's space.
            mode: Whether a smaller (``min``) or a larger value (``max``) is better.
            seed: Seed of the choice among earlier trials.
            last_counts: Whether the value of a stopped trial of this sweep is that of its last report; default: that of
                its best one.
        """
        self._sign, self._last_counts = 1.0 if mode == "min" else -1.0, last_counts
        unit, distributions = UnitCube(space), unconditional(space)
        self._models = [_Model(sweep, unit, space, distributions, self._sign, seed) for sweep in sweeps]
        self._unit, self._seed = unit, seed
        self._points: dict[int, Vector] = {}

    def trusts(self, own: Sequence[FrozenTrial]) -> list[float]:
        """Return the trust in each earlier sweep, from 0 to 1.

        Args:
            own: This sweep's trials so far.
        """
        numbers, losses = self._measured(own)
        return [model.trust(self._vectors(numbers, own), losses) for model in self._models]

    def trials(self, own: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Return the earlier trials to learn from, as complete trials with negative numbers; best last.

        Args:
            own: This sweep's trials so far.
        """
        numbers, losses = self._measured(own)
        if not MIN_PAIRS <= len(numbers) <= IGNORED_AFTER:
            return []
        vectors = self._vectors(numbers, own)
        shown: list[FrozenTrial] = []
        for index, model in enumerate(self._models):
            trust = model.trust(vectors, losses)
            draw = np.random.default_rng((self._seed, len(own), index)).random()
            if draw < trust * HALVED_AFTER / (HALVED_AFTER + len(numbers)):
                shown.extend(model.trials(vectors, losses))
        for index, trial in enumerate(shown):
            trial.number = index - len(shown)
        return shown

    def _measured(self, own: Sequence[FrozenTrial]) -> tuple[list[int], Vector]:
        """Return the positions of the trials with a value, and their values as losses."""
        losses = {index: loss for index, trial in enumerate(own) if (loss := self._loss(trial)) is not None}
        return list(losses), np.array(list(losses.values()))

    def _loss(self, trial: FrozenTrial) -> float | None:
        if trial.state is TrialState.COMPLETE:
            return None if len(trial.values) > 1 else self._sign * trial.values[0]
        if trial.state is TrialState.PRUNED and trial.intermediate_values:
            reports = trial.intermediate_values
            steps = [max(reports)] if self._last_counts else reports
            return min(self._sign * reports[step] for step in steps)
        return None

    def _vectors(self, numbers: Sequence[int], own: Sequence[FrozenTrial]) -> Vector:
        for index in numbers:
            if own[index].number not in self._points:
                self._points[own[index].number] = self._unit.vector(self._unit.point(own[index].params))
        return np.array([self._points[own[index].number] for index in numbers])


class _Model:
    """Model of one earlier sweep."""

    def __init__(
        self,
        sweep: EarlierSweep,
        unit: UnitCube,
        space: Space,
        distributions: dict[str, BaseDistribution],
        sign: float,
        seed: int,
    ):
        self._space, self._distributions, self._sign = space, distributions, sign
        self._points = sweep.points
        self._vectors = unit.matrix(sweep.points)
        self._ranks = _ranks(sign * np.array(sweep.values))
        # If a sweep has more trials than the maximum, always the same random ones are shown.
        self._order = np.random.default_rng(seed).permutation(len(sweep.points))[:MAX_SHOWN]
        self._predicted: dict[bytes, float] = {}

    @cached_property
    def _forest(self) -> RandomForestRegressor:
        from sklearn.ensemble import RandomForestRegressor

        return RandomForestRegressor(100, min_samples_leaf=2, random_state=0).fit(self._vectors, self._ranks)

    def _predict(self, vectors: Vector) -> Vector:
        new = [vector for vector in vectors if vector.tobytes() not in self._predicted]
        if new:
            for vector, rank in zip(new, self._forest.predict(np.array(new)), strict=True):
                self._predicted[vector.tobytes()] = float(rank)
        return np.array([self._predicted[vector.tobytes()] for vector in vectors])

    def trust(self, vectors: Vector, losses: Vector) -> float:
        if len(losses) < MIN_PAIRS:
            return 0.0
        predicted, measured = self._predict(vectors), _ranks(losses)
        if np.ptp(predicted) == 0 or np.ptp(measured) == 0:
            return 0.0
        correlation = np.corrcoef(_ranks(predicted), measured)[0, 1]
        certain = math.atanh(float(np.clip(correlation, -0.999, 0.999))) - 1 / math.sqrt(len(losses) - 3)
        return max(0.0, math.tanh(certain))

    def trials(self, vectors: Vector, losses: Vector) -> list[FrozenTrial]:
        """Return the sweep's trials with values on this sweep's scale, best last."""
        from sklearn.isotonic import IsotonicRegression

        scale = IsotonicRegression(out_of_bounds="clip").fit(self._predict(vectors), losses)
        chosen = sorted(self._order, key=lambda index: -self._ranks[index])
        values = self._sign * scale.predict(self._ranks[chosen])
        return [self._trial(self._points[index], float(value)) for index, value in zip(chosen, values, strict=True)]

    def _trial(self, point: Point, value: float) -> FrozenTrial:
        encoded = {path: each for path, each in self._space.encode(point).items() if path in self._distributions}
        distributions = {path: self._distributions[path] for path in encoded}
        return optuna.create_trial(value=value, params=encoded, distributions=distributions)


def _ranks(values: Vector) -> Vector:
    """Return ranks from 0 to 1; equal values share their mean rank."""
    ordered = np.sort(values)
    middle = (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") - 1) / 2
    return np.asarray(middle / max(len(values) - 1, 1))


class WarmStartSampler(StudyViewSampler):
    """Lets a sampler (TPE, GP) learn from trusted trials of earlier sweeps in addition to the study's own.

    Example:
        >>> import optuna
        >>> from sweeps.search import EarlierSweep, EarlierTrials, FloatDistribution, Space, WarmStartSampler
        >>> space = Space({"x": FloatDistribution(type="float", low=0, high=1)})
        >>> earlier = EarlierTrials([EarlierSweep("earlier", [{"x": 0.5}], [0.1])], space, "min", seed=0)
        >>> sampler = WarmStartSampler(optuna.samplers.TPESampler(), earlier)
        >>> sampler.trials(optuna.create_study(sampler=sampler))
        []
    """

    def __init__(self, sampler: BaseSampler, earlier: EarlierTrials):
        """
        Args:
            sampler: Makes the suggestions.
            earlier: Trials of earlier sweeps.
        """
        super().__init__(sampler)
        self._earlier = earlier

    def trials(self, study: optuna.Study) -> Sequence[FrozenTrial]:
        own = study.get_trials(deepcopy=False)
        return [*self._earlier.trials(own), *own]


class WarmStartedCmaEs(ReseededSampler):
    """CMA-ES whose first generation starts where trusted earlier trials are good.

    The method is Optuna's warm starting CMA-ES (Nomura et al., 2021, https://arxiv.org/abs/2012.06932).
    """

    def __init__(self, make: Callable[[int, list[FrozenTrial] | None], BaseSampler], seed: int, earlier: EarlierTrials):
        """
        Args:
            make: Makes a sampler from its seed and its ``source_trials``.
            seed: Seed of the search.
            earlier: Trials of earlier sweeps, weighted again before each trial.
        """
        self._sources: list[FrozenTrial] | None = None
        super().__init__(lambda trial_seed: make(trial_seed, self._sources), seed)
        self._earlier = earlier

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        own = study.get_trials(deepcopy=False)
        searched = optuna.search_space.IntersectionSearchSpace().calculate(study)
        names = {
            name
            for name, distribution in searched.items()
            if not distribution.single() and not isinstance(distribution, CategoricalDistribution)
        }
        shown = self._earlier.trials(own)
        # Optuna accepts only trials that have exactly the parameters that CMA-ES samples.
        sources = [_only(each, names) for each in shown if names and names <= each.params.keys()]
        self._sources = sources if len(sources) >= MIN_SOURCES else None
        super().before_trial(study, trial)


def _only(trial: FrozenTrial, names: set[str]) -> FrozenTrial:
    def kept(mapping: dict[str, Any]) -> dict[str, Any]:
        return {name: mapping[name] for name in sorted(names)}

    return optuna.create_trial(value=trial.value, params=kept(trial.params), distributions=kept(trial.distributions))
