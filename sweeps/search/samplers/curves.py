"""Sampler with a Gaussian process of all learning curves so far."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from sweeps.compat.optuna import set_note
from sweeps.constants import NUMBER, REASON
from sweeps.search.curve_model.fit import FITTED_AGAIN, fit
from sweeps.search.curve_model.hyperparameters import Hyperparameters
from sweeps.search.curve_model.observations import Array, most_telling, observe
from sweeps.search.curve_model.posterior import Posterior, expected_improvement
from sweeps.search.encoding import UnitCube
from sweeps.search.samplers.candidates import Candidates, CandidateSource
from sweeps.search.samplers.qmc import unconditional
from sweeps.search.samplers.study_view import WrappedSampler, rungs_of
from sweeps.search.schedulers.decisions import is_paused
from sweeps.space.distributions import Lookup, Space

RANDOM_SHARE = 0.1
"""Share of the suggestions that do not ask the model, so that it cannot settle at a wrong place for good."""
MOST = 200
"""Trials that the model is given at most."""
RANDOM, NEAR, REFINED = 256, 48, 24
"""Candidates: random ones, those near the best trials, and those near the best candidates, twice."""
NUM_PARENTS, NUM_REFINED = 6, 3
NEAR_WIDTHS, REFINED_WIDTHS = (0.045, 0.15), ((0.024, 0.08), (0.012, 0.04))
SAME = 1e-4
"""Distance in the unit cube within which two points are the same."""
FITTED = "sweeps:curve_model"
"""System attribute of a trial: the hyperparameters that were fitted before its suggestion."""


class _Seen(NamedTuple):
    """The trials that the model learns from."""

    trials: list[FrozenTrial]
    vectors: Array
    values: Array
    """Values of shape ``[trials, rungs]``; smaller is better."""


class CurveSampler(WrappedSampler):
    """Suggests the point with the largest expected improvement at the last rung, by a model of all learning curves.

    The model (``sweeps.search.curve_model``) measures how far the values at each rung tell those at the next one, and
    learns from finished, pruned, paused and running trials alike, each up to the rung that it has reached. A rung is a
    step at which several trials ended or wait; the scheduler is not asked. Running trials count as if they would end
    with what is predicted for them, so that simultaneous suggestions differ. A trial that broke a limit, or whose
    training diverged, counts as one of the worst.

    The first suggestions, and a tenth of all later ones, are those of the wrapped sampler. With several objectives, it
    makes all of them.

    Hyperparameters are fitted anew when there are a fifth more values, and noted in the trial: so the suggestions are
    the same if the search is interrupted, and can be made again.

    Example:
        >>> import optuna
        >>> from sweeps.search import CurveSampler, FloatDistribution, Space
        >>> space = Space({"x": FloatDistribution(type="float", low=0, high=1)})
        >>> sampler = CurveSampler(optuna.samplers.RandomSampler(seed=0), space, startup=8, seed=0)
        >>> study = optuna.create_study(sampler=sampler)
        >>> 0 <= study.ask().suggest_float("x", 0, 1) <= 1
        True
    """

    def __init__(self, sampler: BaseSampler, space: Space, startup: int, seed: int, lookup: Lookup = lambda path: None):
        """
        Args:
            sampler: Makes the first suggestions.
            space: Space of the points.
            startup: Fewest trials with a value for the model.
            seed: Seed of the search.
            lookup: Returns the config's own value at a path.
        """
        super().__init__(sampler)
        self._startup, self._seed = startup, seed
        self._cube, self._relative = UnitCube(space), unconditional(space)
        self._candidates = CandidateSource(space, self._cube, lookup, seed)
        self._vectors: dict[int, Array] = {}
        self._seen: tuple[int, _Seen | None] | None = None

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        self._seen = None
        if self._seen_for(study, trial) is None:
            return super().infer_relative_search_space(study, trial)
        return self._relative

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        seen = self._seen_for(study, trial)
        if seen is None or search_space.keys() != self._relative.keys():
            return super().sample_relative(study, trial, search_space)
        return self._suggest(study, trial, seen)

    # --- what the model learns from ------------------------------------------------------------------------------

    def _seen_for(self, study: optuna.Study, trial: FrozenTrial) -> _Seen | None:
        """The trials for a suggestion; None if the wrapped sampler shall make it."""
        if self._seen is None or self._seen[0] != trial.number:
            is_random = random.Random(f"{self._seed}/{trial.number}/free").random() < RANDOM_SHARE
            asks = self._relative and len(study.directions) == 1 and not is_random
            self._seen = trial.number, self._learnt_from(study) if asks else None
        return self._seen[1]

    def _learnt_from(self, study: optuna.Study) -> _Seen | None:
        sign = 1.0 if study.direction is StudyDirection.MINIMIZE else -1.0
        trials = [trial for trial in study.get_trials(deepcopy=False) if _has_values(trial)]
        rungs = rungs_of([each for each in trials if each.intermediate_values])
        curves = [_curve(trial, rungs, sign) for trial in trials]
        reached = [index for index, curve in enumerate(curves) if any(map(math.isfinite, curve))]
        if len(reached) < self._startup:
            return None
        values = np.array([curves[index] for index in reached])
        bad = np.nanmax(values, axis=0)
        for row, index in enumerate(reached):
            if is_bad(trials[index]):
                values[row] = np.where(np.isfinite(values[row]), bad, np.nan)
        rows = most_telling(values, MOST)
        chosen = [trials[reached[row]] for row in rows]
        return _Seen(chosen, np.array([self._vector(each) for each in chosen]), values[rows])

    def _vector(self, trial: FrozenTrial) -> Array:
        if trial.number < 0:  # of an earlier sweep: another one may have the same number for the next suggestion
            return self._cube.vector(self._cube.point(trial.params))
        if trial.number not in self._vectors:
            self._vectors[trial.number] = self._cube.vector(self._cube.point(trial.params))
        return self._vectors[trial.number]

    # --- the suggestion ------------------------------------------------------------------------------------------

    def _suggest(self, study: optuna.Study, trial: FrozenTrial, seen: _Seen) -> dict[str, Any]:
        data, end = observe(seen.vectors, seen.values), seen.values.shape[1] - 1
        every = study.get_trials(deepcopy=False)
        at = self._hyperparameters(study, trial, every, seen)
        running = [each for each in every if _is_running(each) and each.number != trial.number]
        posterior = Posterior(at, self._cube.groups, data)
        if running:
            vectors = np.array([self._cube.vector(self._cube.point(each.params)) for each in running])
            data = data.with_values(vectors, end, posterior.predict(vectors, end)[0])
            posterior = Posterior(at, self._cube.groups, data)
        mean, _ = posterior.predict(data.vectors, end)
        best = float(mean.min())
        parents = [seen.trials[row].params for row in np.argsort(mean[: len(seen.trials)])[:NUM_PARENTS]]
        seed = int(np.random.SeedSequence((self._seed, trial.number)).generate_state(1)[0] >> 2)
        candidates = self._candidates.random(RANDOM, seed).with_others(
            self._candidates.near(parents, NEAR_WIDTHS, NEAR, seed)
        )
        known = np.vstack([data.vectors, *self._just_rejected(every, trial)])
        promise = _promise(posterior, candidates, end, best, known)
        for turn, widths in enumerate(REFINED_WIDTHS, start=1):
            given = [candidates.parameters[index] for index in np.argsort(-promise)[:NUM_REFINED]]
            refined = self._candidates.near(given, widths, REFINED, seed + turn * NEAR)
            promise = np.concatenate([promise, _promise(posterior, refined, end, best, known)])
            candidates = candidates.with_others(refined)
        chosen = candidates.parameters[int(np.argmax(promise))]
        # Parameters that do not exist at this point need some value: Optuna asks for none of them.
        return {name: _any_value(distribution) for name, distribution in self._relative.items()} | {
            name: value for name, value in chosen.items() if name in self._relative
        }

    def _hyperparameters(
        self, study: optuna.Study, trial: FrozenTrial, every: Sequence[FrozenTrial], seen: _Seen
    ) -> Hyperparameters:
        """The last ones that were noted, or new ones if there are many more values."""
        rungs, count = seen.values.shape[1], int(np.isfinite(seen.values).sum())
        parameters = len(set(self._cube.groups))
        noted = next((each.system_attrs[FITTED] for each in reversed(every) if FITTED in each.system_attrs), None)
        start = None
        if noted is not None and noted["rungs"] == rungs:
            start = Hyperparameters.of(noted["values"], parameters, rungs)
            if count < noted["count"] * FITTED_AGAIN:
                return start
        at = fit(observe(seen.vectors, seen.values), self._cube.groups, rungs, start)
        values = [float(f"{value:.9g}") for value in at.vector()]
        set_note(study, trial, FITTED, {"count": count, "rungs": rungs, "values": values})
        return Hyperparameters.of(np.array(values), parameters, rungs)

    def _just_rejected(self, every: Sequence[FrozenTrial], trial: FrozenTrial) -> list[Array]:
        """Points of the last suggestions, as far as none of them was started."""
        rejected = []
        for each in reversed([other for other in every if other.number < trial.number]):
            if each.state is not TrialState.FAIL or NUMBER in each.user_attrs or not each.params:
                break
            rejected.append(self._cube.vector(self._cube.point(each.params))[None])
        return rejected


def _promise(posterior: Posterior, candidates: Candidates, end: int, best: float, known: Array) -> Array:
    """Logarithm of the candidates' expected improvement; very low for points that are known."""
    mean, deviation = posterior.predict(candidates.vectors, end)
    improvement = expected_improvement(mean, deviation, best)
    # Far from the best the expected improvement is no number any more, but some points are still nearer.
    promise = np.where(improvement > 1e-12, np.log(np.maximum(improvement, 1e-12)), -27.7 - (mean - best) / deviation)
    distance = np.abs(candidates.vectors[:, None] - known[None]).max(axis=2).min(axis=1)
    return np.where(distance < SAME, promise - 1e6, promise)


def _curve(trial: FrozenTrial, rungs: Sequence[int], sign: float) -> list[float]:
    """Values at the rungs, NaN where there are none; a trial without reports has its value at the last rung."""
    values: Mapping[int, float] = trial.intermediate_values
    if not values and trial.state is TrialState.COMPLETE:
        return [math.nan] * max(len(rungs) - 1, 0) + [sign * trial.values[0]]
    return [sign * values.get(rung, math.nan) for rung in rungs]


def _has_values(trial: FrozenTrial) -> bool:
    if trial.state is TrialState.FAIL:
        return bool(trial.intermediate_values) and is_bad(trial)
    return bool(trial.intermediate_values) or (trial.state is TrialState.COMPLETE and trial.values is not None)


def is_bad(trial: FrozenTrial) -> bool:
    """Whether a trial broke a limit, or ended with a value that is no number."""
    if trial.state is TrialState.FAIL:
        return str(trial.user_attrs.get(REASON, "")).endswith(("=nan", "=inf", "=-inf"))
    return any(violation > 0 for violation in (trial.constraints or {}).values())


def _is_running(trial: FrozenTrial) -> bool:
    """Whether a trial trains now. One that waits is known as far as it has come."""
    return trial.state is TrialState.RUNNING and bool(trial.params) and not is_paused(trial)


def _any_value(distribution: BaseDistribution) -> Any:
    if isinstance(distribution, optuna.distributions.CategoricalDistribution):
        return distribution.choices[0]
    assert isinstance(distribution, optuna.distributions.FloatDistribution | optuna.distributions.IntDistribution)
    return distribution.low
