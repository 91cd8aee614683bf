"""Sampler that uses a Gaussian process of all learning curves so far."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState
from scipy.spatial.distance import cdist

from sweeps.compat.optuna import set_note
from sweeps.constants import COST_MODEL, CURVE_MODELS, NUMBER
from sweeps.search.curve_model.cost import FEWEST, CostModel, fit_costs
from sweeps.search.curve_model.fit import FITTED_AGAIN, FITTED_FIRST, fit
from sweeps.search.curve_model.hyperparameters import Hyperparameters
from sweeps.search.curve_model.observations import Array, Observations, most_telling, observe, with_worst
from sweeps.search.curve_model.posterior import Posterior
from sweeps.search.curve_model.threads import on_one_thread
from sweeps.search.samplers.acquisition import Acquisition
from sweeps.search.samplers.candidates import Allows, Candidates, CandidateSource
from sweeps.search.samplers.qmc import unconditional
from sweeps.search.samplers.study_curves import StudyCurves
from sweeps.search.samplers.study_view import WrappedSampler
from sweeps.search.schedulers.decisions import is_running, seconds_for_a_unit
from sweeps.search.unit_cube import UnitCube
from sweeps.space.space import Lookup, Space

RANDOM_SHARE, RANDOM_AT_FIRST = 0.1, 0.5
"""Minimum share of the suggestions that do not use the model, so that the search cannot get stuck in a wrong region;
and the share before any training has ended, when it is unknown how well early values predict final ones."""
FEWEST_GOOD = 2
"""Minimum number of trials without a violated limit or divergence for using the model."""
MOST, MOST_RUNNING = 200, 100
"""Maximum number of trials for the model, and of additional running trials (the newest)."""
RANDOM, NEAR, REFINED = 256, 48, 24
"""Number of random candidates, of candidates near the best trials, and of candidates near the best candidates
(twice)."""
NUM_PARENTS, NUM_REFINED = 6, 3
NEAR_WIDTHS, REFINED_WIDTHS = (0.045, 0.15), ((0.024, 0.08), (0.012, 0.04))
SAME = 1e-4
"""Distance in the unit cube within which two points are the same."""
KNOWN = 1e6
"""Amount subtracted from the score of a known point."""


class _Seen(NamedTuple):
    """Trials that the model learns from, and their values."""

    trials: list[FrozenTrial]
    vectors: Array
    values: Array
    """Values of shape ``[objectives, trials, rungs]``; smaller is better."""
    rungs: list[int]
    """Steps of the rungs."""
    num_values: int
    """Number of values of the first objective in trials of this search, including trials that are left out."""


class CurveSampler(WrappedSampler):
    """Suggests the point with the largest expected improvement at the last rung, by a model of all learning curves.

    The model (``sweeps.search.curve_model``) learns how well the values at each rung predict those at the next one, and
    learns from finished, pruned, paused and running trials alike, each up to the rung that it has reached. A rung is a
    step at which several trials ended, wait or were judged. Running trials count as if they had ended with their
    predicted values, so that simultaneous suggestions differ. A trial that broke a limit, or whose training diverged,
    counts as one of the worst; at the first rung if it has reached none. The model learns nothing from crashes: that is
    ``FailureAdvisor``'s task. If the search has a budget of time, the improvement is divided by its cost
    (``CostModel``). With several objectives, each has a model, and the improvement is that of a weighted objective,
    with new random weights for each suggestion (``sweeps.search.samplers.acquisition``). The wrapped sampler makes the
    first suggestions, half of those before a training has ended, and later a tenth. Hyperparameters are fitted again
    when the number of values has grown by a fifth, and recorded in the trial, so that an interrupted search makes the
    same suggestions, and they can be repeated.

    Example:
        >>> import optuna
        >>> from sweeps.search import CurveSampler, FloatDistribution, Space
        >>> space = Space({"x": FloatDistribution(type="float", low=0, high=1)})
        >>> sampler = CurveSampler(optuna.samplers.RandomSampler(seed=0), space, startup=8, seed=0)
        >>> study = optuna.create_study(sampler=sampler)
        >>> 0 <= study.ask().suggest_float("x", 0, 1) <= 1
        True
    """

    def __init__(
        self,
        sampler: BaseSampler,
        space: Space,
        startup: int,
        seed: int,
        lookup: Lookup = lambda path: None,
        allows: Allows = lambda point: True,
    ):
        """
        Args:
            sampler: Makes the first suggestions.
            space: Space of the points.
            startup: Minimum number of trials with a value for the model.
            seed: Seed of the search.
            lookup: Returns the config's own value at a path.
            allows: Whether the search's constraints hold at a point.
        """
        super().__init__(sampler)
        self._startup, self._seed = startup, seed
        self._cube, self._relative = UnitCube(space), unconditional(space)
        self._candidates = CandidateSource(space, self._cube, lookup, seed, allows)
        self._vectors: dict[int, Array] = {}
        self._curves = StudyCurves()
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
        """Return the trials for a suggestion; None if the wrapped sampler should make it."""
        if self._seen is None or self._seen[0] != trial.number:
            ended = sum(each.state is TrialState.COMPLETE for each in study.get_trials(deepcopy=False))
            share = max(RANDOM_SHARE, RANDOM_AT_FIRST / (1 + ended))
            is_random = random.Random(f"{self._seed}/{trial.number}/free").random() < share
            asks = self._relative and not is_random
            self._seen = trial.number, self._learnt_from(study) if asks else None
        return self._seen[1]

    def _learnt_from(self, study: optuna.Study) -> _Seen | None:
        trials, values, bad, rungs = self._curves.read(study)
        if len(trials) < self._startup or (~bad).sum() < FEWEST_GOOD:
            return None
        values = with_worst(values, bad)
        own = [trial.number >= 0 for trial in trials]
        num_values = int(np.isfinite(values[0, own]).sum())
        rows = most_telling(values, MOST)
        chosen = [trials[row] for row in rows]
        vectors = np.array([self._vector(each) for each in chosen])
        return _Seen(chosen, vectors, values[:, rows], rungs, num_values)

    def _vector(self, trial: FrozenTrial) -> Array:
        if trial.number in self._vectors:
            return self._vectors[trial.number]
        vector = self._cube.vector(self._cube.point(trial.params))
        # One of an earlier sweep may have the number of a later trial; one that has not started may lack parameters.
        if trial.number >= 0 and (trial.state.is_finished() or NUMBER in trial.user_attrs):
            self._vectors[trial.number] = vector
        return vector

    # --- the suggestion ------------------------------------------------------------------------------------------

    @on_one_thread
    def _suggest(self, study: optuna.Study, trial: FrozenTrial, seen: _Seen) -> dict[str, Any]:
        every = study.get_trials(deepcopy=False)
        others = [each for each in every if each.params and each.number != trial.number]
        running = [each for each in others if is_running(each)][-MOST_RUNNING:]
        under_way = np.array([self._vector(each) for each in running])
        models, end = self._hyperparameters(study, trial, every, seen), seen.values.shape[2] - 1
        posteriors = [
            self._posterior(at, observe(seen.vectors, values), under_way, end)
            for at, values in zip(models, seen.values, strict=True)
        ]
        tried = np.vstack([seen.vectors, *under_way])
        known = np.array([self._vector(each) for each in others])
        seed = int(np.random.SeedSequence((self._seed, trial.number)).generate_state(1)[0] >> 2)
        acquisition = Acquisition(posteriors, end, tried, seed, self._costs(study, trial, every, seen))
        parents = [seen.trials[row].params for row in acquisition.best_known(len(seen.trials))[:NUM_PARENTS]]
        candidates = self._candidates.random(RANDOM, seed).with_others(
            self._candidates.near(parents, NEAR_WIDTHS, NEAR, seed)
        )
        found = acquisition.of(candidates.vectors) - KNOWN * _is_known(candidates, known)
        for turn, widths in enumerate(REFINED_WIDTHS, start=1):
            given = [candidates.parameters[index] for index in np.argsort(-found)[:NUM_REFINED]]
            refined = self._candidates.near(given, widths, REFINED, seed + turn * NEAR)
            found = np.concatenate([found, acquisition.of(refined.vectors) - KNOWN * _is_known(refined, known)])
            candidates = candidates.with_others(refined)
        chosen = candidates.parameters[int(np.argmax(found))]
        # If a person or an advisor fixed a choice, Optuna may ask for parameters that do not exist at this point: the
        # wrapped sampler suggests those.
        return {name: value for name, value in chosen.items() if name in self._relative}

    def _posterior(self, at: Hyperparameters, data: Observations, under_way: Array, end: int) -> Posterior:
        """Return the model, conditioned as if running trials had ended with their predicted values."""
        posterior = Posterior(at, self._cube.groups, data)
        if not len(under_way):
            return posterior
        means, _ = posterior.predict(under_way, end)
        return Posterior(at, self._cube.groups, data.with_values(under_way, end, means))

    def _hyperparameters(
        self, study: optuna.Study, trial: FrozenTrial, every: Sequence[FrozenTrial], seen: _Seen
    ) -> list[Hyperparameters]:
        """Return each objective's hyperparameters: the last recorded ones, or newly fitted ones if there are many more
        values since."""
        rungs, parameters = len(seen.rungs), len(set(self._cube.groups))
        noted = next((each for each in _noted(every, CURVE_MODELS) if each["rungs"] == seen.rungs), None)
        starts: list[Hyperparameters | None] = [None] * len(seen.values)
        if noted is not None:
            kept = [Hyperparameters.of(vector, parameters, rungs) for vector in noted["vectors"]]
            if seen.num_values < max(noted["count"], FITTED_FIRST) * FITTED_AGAIN:
                return kept
            starts = [*kept]
        vectors = [
            _rounded(fit(observe(seen.vectors, values), self._cube.groups, rungs, start))
            for values, start in zip(seen.values, starts, strict=True)
        ]
        set_note(study, trial, CURVE_MODELS, {"count": seen.num_values, "rungs": seen.rungs, "vectors": vectors})
        return [Hyperparameters.of(np.array(vector), parameters, rungs) for vector in vectors]

    def _costs(
        self, study: optuna.Study, trial: FrozenTrial, every: Sequence[FrozenTrial], seen: _Seen
    ) -> CostModel | None:
        """Return the model of the cost of trainings; None if too few costs are known."""
        known = [seconds_for_a_unit(each) for each in seen.trials]
        rows = [row for row, seconds in enumerate(known) if seconds is not None]
        if len(rows) < FEWEST:
            return None
        groups, vectors, seconds = self._cube.groups, seen.vectors[rows], np.array([known[row] for row in rows])
        noted = next(_noted(every, COST_MODEL), None)
        if noted is None or len(rows) >= noted["count"] * FITTED_AGAIN:
            noted = {"count": len(rows), "vector": _rounded(fit_costs(groups, vectors, seconds))}
            set_note(study, trial, COST_MODEL, noted)
        return CostModel(Hyperparameters.of(np.array(noted["vector"]), len(set(groups)), 1), groups, vectors, seconds)


def _noted(trials: Sequence[FrozenTrial], key: str) -> Iterator[dict[str, Any]]:
    """Yield the records under a key in the trials, newest first."""
    return (each.system_attrs[key] for each in reversed(trials) if key in each.system_attrs)


def _rounded(at: Hyperparameters) -> list[float]:
    """Round a vector of hyperparameters to its recorded form."""
    return [float(f"{value:.9g}") for value in at.vector()]


def _is_known(candidates: Candidates, known: Array) -> Array:
    """Whether each candidate is a known point."""
    distance = cdist(candidates.vectors, known, "chebyshev").min(axis=1)
    return np.asarray(distance < SAME)
