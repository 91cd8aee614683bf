"""Builds samplers from their config."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from sweeps.config.samplers import (
    BOHBSampler,
    BruteForceSampler,
    CmaEsSampler,
    CustomSampler,
    GPSampler,
    GridSampler,
    NSGASampler,
    QMCSampler,
    RandomSampler,
    Sampler,
    TPESampler,
)
from sweeps.config.samplers import CurveSampler as CurveConfig
from sweeps.search.samplers.bohb import RungSampler
from sweeps.search.samplers.candidates import Allows
from sweeps.search.samplers.custom import make_custom_sampler
from sweeps.search.samplers.limited_history import LimitedHistorySampler, newest
from sweeps.search.samplers.qmc import SpaceFillingSampler
from sweeps.search.samplers.reseeded import ReseededSampler
from sweeps.search.samplers.transfer import EarlierTrials, WarmStartedCmaEs, WarmStartSampler
from sweeps.space.space import Lookup, Space

ONE_OPTIMUM: dict[str, Any] = {"multivariate": True, "group": True}
"""Options of TPE for one objective. Conditional parameters that occur together are modelled together."""
FRONT: dict[str, Any] = {"multivariate": False, "gamma": lambda ended: min(math.ceil(0.2 * ended), 25)}
"""Options of TPE for several objectives. Good trials lie along a whole front: a fifth counts as good instead of
Optuna's tenth, at most 25 as in Optuna. Each parameter has its own density, since a joint one of few points in several
places is worse (``benchmarks/two_objectives.py``)."""

LIMITS_OF_TPE: dict[str, Any] = {"most": 400, "best": 50}
"""Trials of a long study that TPE sees. It compares the best 25 with all others."""
LIMITS_OF_GP: dict[str, Any] = {"most": 300, "best": 100, "others": newest, "states": (TrialState.COMPLETE,)}
"""Trials of a long study that the Gaussian process sees: also the newest, since it would otherwise suggest their points
again. A fit to 1,000 trials takes seconds for each suggestion."""


def build_sampler(
    sampler: Sampler,
    seed: int,
    space: Space,
    earlier: EarlierTrials | None = None,
    objectives: int = 1,
    lookup: Lookup = lambda path: None,
    allows: Allows = lambda point: True,
) -> BaseSampler:
    """Build a sampler from its config.

    With one trial at a time the sampler makes the same suggestions for the same seed, even if the search is interrupted
    in between (a custom sampler does so only if it keeps no state in memory).

    Args:
        sampler: The config.
        seed: Seed of the search.
        space: Space to sample.
        earlier: Trials of earlier sweeps, from which ``tpe``, ``gp``, ``cmaes``, ``bohb`` and ``curves``
            learn; default: none.
        objectives: Number of objectives, by which TPE chooses its model.
        lookup: Returns the config's own value at a path, for conditions on paths that are not searched.
        allows: Whether the search's constraints hold at a point, ``curves`` suggests no other points.

    Returns:
        The sampler, for ``OptunaSearcher`` or a study of Optuna.

    Raises:
        ConfigError: A custom sampler cannot be made.

    Example:
        >>> import optuna
        >>> from sweeps.config.samplers import TPESampler
        >>> from sweeps.search import FloatDistribution, Space, build_sampler
        >>> space = Space({"lr": FloatDistribution(type="float", low=1e-5, high=1e-2, log=True)})
        >>> study = optuna.create_study(sampler=build_sampler(TPESampler(kind="tpe"), 0, space))
        >>> 1e-5 <= study.ask().suggest_float("lr", 1e-5, 1e-2, log=True) <= 1e-2
        True
    """
    if isinstance(sampler, BOHBSampler):
        model = TPESampler(kind="tpe", startup_trials=sampler.startup_trials)
        return RungSampler(build_sampler(model, seed, space, earlier, objectives), sampler.startup_trials)
    if isinstance(sampler, CustomSampler):
        made = make_custom_sampler(sampler, seed)
        return ReseededSampler(lambda trial_seed: made, seed)

    def make(trial_seed: int, sources: list[FrozenTrial] | None = None) -> BaseSampler:
        with warnings.catch_warnings():  # warnings that some are experimental in Optuna 5
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            warnings.simplefilter("ignore", FutureWarning)  # warnings that TPE's gamma is removed in Optuna 6
            if isinstance(sampler, QMCSampler):
                return SpaceFillingSampler(sampler.sequence, space, scramble=seed, seed=trial_seed)
            return _make(sampler, trial_seed, sources, objectives)

    if earlier is not None and isinstance(sampler, CmaEsSampler):
        return WarmStartedCmaEs(make, seed, earlier)
    made_again: BaseSampler
    if isinstance(sampler, CurveConfig):
        from sweeps.search.samplers.curves import CurveSampler  # loads much of SciPy

        first = build_sampler(RandomSampler(kind="random"), seed, space)
        made_again = CurveSampler(first, space, sampler.startup_trials, seed, lookup, allows)
    else:
        made_again = ReseededSampler(make, seed)
    if isinstance(sampler, TPESampler):
        made_again = LimitedHistorySampler(made_again, **LIMITS_OF_TPE)
    if isinstance(sampler, GPSampler):
        made_again = LimitedHistorySampler(made_again, **LIMITS_OF_GP)
    if earlier is not None and isinstance(sampler, TPESampler | GPSampler | CurveConfig):
        return WarmStartSampler(made_again, earlier)
    return made_again


def _make(sampler: Sampler, seed: int, sources: list[FrozenTrial] | None, objectives: int) -> BaseSampler:
    match sampler:
        case TPESampler(startup_trials=startup):
            model = ONE_OPTIMUM if objectives == 1 else FRONT
            # constant_liar: running trials count as bad, so that parallel suggestions differ.
            return optuna.samplers.TPESampler(seed=seed, constant_liar=True, n_startup_trials=startup, **model)
        case GPSampler(startup_trials=startup):
            return optuna.samplers.GPSampler(**_seeded(seed, startup))
        case CmaEsSampler(startup_trials=startup):
            return optuna.samplers.CmaEsSampler(source_trials=sources, **_seeded(seed, startup))
        case NSGASampler(kind=kind, population=population):
            genetic = optuna.samplers.NSGAIISampler if kind == "nsga2" else optuna.samplers.NSGAIIISampler
            return genetic(seed=seed, population_size=population)
        case BruteForceSampler():
            return optuna.samplers.BruteForceSampler(seed=seed)
        case RandomSampler() | GridSampler():  # the searcher gets the grid's points as a list
            return optuna.samplers.RandomSampler(seed=seed)
        case BOHBSampler() | CurveConfig() | QMCSampler() | CustomSampler():
            raise AssertionError(f"{sampler.kind} is built by build_sampler")


def _seeded(seed: int, startup: int) -> dict[str, Any]:
    """Return the options with which a sampler leaves parameters that it does not model (conditional ones, choices) to
    TPE."""
    rest = optuna.samplers.TPESampler(
        seed=seed, multivariate=False, n_startup_trials=max(startup, TPESampler(kind="tpe").startup_trials)
    )
    return {
        "seed": seed,
        "n_startup_trials": startup,
        "independent_sampler": rest,
        "warn_independent_sampling": False,
    }


def shuffled(points: Sequence[Mapping[str, Any]], seed: int) -> list[dict[str, Any]]:
    """Return the points in a seeded random order, so that the first part of a grid also covers its whole range."""
    shuffled = [dict(point) for point in points]
    random.Random(seed).shuffle(shuffled)
    return shuffled
