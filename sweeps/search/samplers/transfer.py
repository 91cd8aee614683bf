"""Warm start: a sampler learns from earlier sweeps, as far as they prove to tell of today's trials."""

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

from sweeps.search.encoding import UnitSpace, Vector
from sweeps.search.samplers.earlier_trials import EarlierSweep, Point
from sweeps.search.samplers.qmc import unconditional
from sweeps.search.samplers.reseeded import ReseededSampler
from sweeps.search.samplers.study_view import StudyViewSampler
from sweeps.space.distributions import Space

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestRegressor

RETRIED, BEST_PART = 3, 0.25
"""The best earlier points that are tried again, before anything is suggested: so many, of the best quarter."""
ALIKE = 0.1
"""Points nearer to each other than this, in the unit cube, are tried again only once."""
MIN_PAIRS = 5
"""Own trials before earlier ones are trusted at all."""
HALVED_AFTER = 20
"""Own trials after which half of the trust is left, a third after twice as many, and so on."""
MOST_SHOWN = 200
"""Earlier trials of one sweep that are ever shown."""
FEWEST_SOURCES = 10
"""Earlier trials from which CMA-ES can start: it takes their best tenth."""
FORGOTTEN_AFTER = 500
"""Own trials after which earlier ones tell nothing new."""


def points_again(earlier: Sequence[EarlierSweep], space: Space) -> list[Point]:
    """The best few distinct points of earlier sweeps, in turns, to be tried first: they are measured as things are
    today, and what they give tells how far the rest can be trusted."""
    unit, chosen, vectors = UnitSpace(space), list[Point](), list[Vector]()
    waiting = [sweep.points[: math.ceil(BEST_PART * len(sweep.points))] for sweep in earlier]
    while len(chosen) < RETRIED and any(waiting):
        for points in waiting:
            while points and len(chosen) < RETRIED:
                point = points.pop(0)
                vector = unit.vector(point)
                if all(float(np.linalg.norm(vector - other)) > ALIKE for other in vectors):
                    chosen.append(point)
                    vectors.append(vector)
                    break
    return chosen


class EarlierTrials:
    """Trials of earlier sweeps, weighted by how well they predict today's.

    Each earlier sweep has a model of its own (a random forest through the ranks of its trials' values), which predicts
    the rank of today's points. Its *trust* is the rank correlation between what it predicts and what today's trials
    gave, less one standard error (by Fisher's transformation): with few trials, or where the two do not agree, it is
    zero. With a probability of the trust, which fades with the number of today's trials (they know better in the end),
    the sampler is shown the earlier sweep's trials for the next suggestion, and else not: so that part of today's
    trials are free of its influence, and it is found out where it misleads. (Measured: always showing a part of the
    trials that follows from the trust held some searches where the misleading sweep had been good.) Values are brought
    to today's scale by a monotone regression (isotonic) of today's values on the predicted ranks.

    What others do: RGPE (Feurer et al., 2018, https://arxiv.org/abs/1802.02219) weights Gaussian processes of earlier
    tasks by how well they rank the observations of the new one; here the same idea serves any sampler that learns from
    a list of trials.
    """

    def __init__(self, sweeps: Sequence[EarlierSweep], space: Space, mode: str, seed: int):
        """
        Args:
            sweeps: Their points lie in the space.
            space: Today's.
            mode: Whether a smaller or a larger value is better.
            seed: Of the choice among earlier trials.
        """
        self._sign = 1.0 if mode == "min" else -1.0
        unit, distributions = UnitSpace(space), unconditional(space)
        self._models = [_Model(sweep, unit, space, distributions, self._sign, seed) for sweep in sweeps]
        self._unit, self._seed = unit, seed
        self._points: dict[int, Vector] = {}
        self._weighed: tuple[int, list[FrozenTrial]] = (-1, [])

    def trusts(self, own: Sequence[FrozenTrial]) -> list[float]:
        """From 0 to 1, for each earlier sweep."""
        numbers, losses = self._measured(own)
        return [model.trust(self._vectors(numbers, own), losses) for model in self._models]

    def to_show(self, own: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Earlier trials worth learning from, as finished trials with negative numbers; the best last."""
        numbers, losses = self._measured(own)
        if not MIN_PAIRS <= len(numbers) <= FORGOTTEN_AFTER:
            return []
        vectors = self._vectors(numbers, own)
        shown: list[FrozenTrial] = []
        for index, model in enumerate(self._models):
            trust = model.trust(vectors, losses)
            dice = np.random.default_rng((self._seed, len(own), index)).random()
            if dice < trust * HALVED_AFTER / (HALVED_AFTER + len(numbers)):
                shown.extend(model.trials(vectors, losses))
        for index, trial in enumerate(shown):
            trial.number = index - len(shown)
        return shown

    def _measured(self, own: Sequence[FrozenTrial]) -> tuple[list[int], Vector]:
        """Positions of the trials that have a value, and their values, to be minimised."""
        losses = {index: loss for index, trial in enumerate(own) if (loss := self._loss(trial)) is not None}
        return list(losses), np.array(list(losses.values()))

    def _loss(self, trial: FrozenTrial) -> float | None:
        if trial.state is TrialState.COMPLETE:
            return None if len(trial.values) > 1 else self._sign * trial.values[0]
        if trial.state is TrialState.PRUNED and trial.intermediate_values:
            return min(self._sign * value for value in trial.intermediate_values.values())
        return None

    def _vectors(self, numbers: Sequence[int], own: Sequence[FrozenTrial]) -> Vector:
        for index in numbers:
            if own[index].number not in self._points:
                self._points[own[index].number] = self._unit.vector(self._unit.point(own[index].params))
        return np.array([self._points[own[index].number] for index in numbers])


class _Model:
    """One earlier sweep."""

    def __init__(
        self,
        sweep: EarlierSweep,
        unit: UnitSpace,
        space: Space,
        distributions: dict[str, BaseDistribution],
        sign: float,
        seed: int,
    ):
        self._space, self._distributions, self._sign = space, distributions, sign
        self._points = sweep.points
        self._vectors = unit.matrix(sweep.points)
        self._ranks = _ranks(sign * np.array(sweep.values))
        # Which trials are shown, when not all are: at random, and always the same ones.
        self._order = np.random.default_rng(seed).permutation(len(sweep.points))[:MOST_SHOWN]
        self._predicted: dict[bytes, float] = {}

    def __len__(self) -> int:
        return len(self._order)

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
        """The first of the chosen ones, with values on today's scale; the best last."""
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
    """From 0 to 1; equal values share their middle rank."""
    ordered = np.sort(values)
    middle = (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") - 1) / 2
    return np.asarray(middle / max(len(values) - 1, 1))


class WarmStartSampler(StudyViewSampler):
    """Shows a sampler (TPE, GP) earlier trials beside the study's own, as far as they are trusted.

    Example:
        >>> earlier = load_earlier("sqlite:///mlflow.db", ["last-week"], space, lookup, "loss", "min")
        >>> sampler = WarmStartSampler(optuna.samplers.TPESampler(), EarlierTrials(earlier, space, "min", seed=0))
        >>> OptunaSearcher(space, metric="loss", mode="min", sampler=sampler, points=points_again(earlier, space))
    """

    def __init__(self, sampler: BaseSampler, earlier: EarlierTrials):
        super().__init__(sampler)
        self._earlier = earlier

    def trials(self, study: optuna.Study) -> Sequence[FrozenTrial]:
        own = study.get_trials(deepcopy=False)
        return [*self._earlier.to_show(own), *own]


class WarmStartedCmaEs(ReseededSampler):
    """CMA-ES that starts its first generation where the trusted earlier trials are good (warm starting CMA-ES: Nomura
    et al., 2021, https://arxiv.org/abs/2012.06932, by Optuna)."""

    def __init__(self, make: Callable[[int, list[FrozenTrial] | None], BaseSampler], seed: int, earlier: EarlierTrials):
        """
        Args:
            make: Makes a sampler by its seed and its ``source_trials``.
            seed: Of the search.
            earlier: Are weighed before each trial.
        """
        self._sources: list[FrozenTrial] | None = None
        super().__init__(lambda of_trial: make(of_trial, self._sources), seed)
        self._earlier = earlier

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        own = study.get_trials(deepcopy=False)
        searched = optuna.search_space.IntersectionSearchSpace().calculate(study)
        names = {
            name
            for name, distribution in searched.items()
            if not distribution.single() and not isinstance(distribution, CategoricalDistribution)
        }
        shown = self._earlier.to_show(own)
        # Optuna takes only trials that have exactly what CMA-ES samples.
        sources = [_only(each, names) for each in shown if names and names <= each.params.keys()]
        self._sources = sources if len(sources) >= FEWEST_SOURCES else None
        super().before_trial(study, trial)


def _only(trial: FrozenTrial, names: set[str]) -> FrozenTrial:
    def kept(mapping: dict[str, Any]) -> dict[str, Any]:
        return {name: mapping[name] for name in sorted(names)}

    return optuna.create_trial(value=trial.value, params=kept(trial.params), distributions=kept(trial.distributions))
