"""Optuna samplers by config."""

from __future__ import annotations

import importlib
import inspect
import random
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from sweeps.config.search import (
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
from sweeps.errors import ConfigError
from sweeps.search.samplers.bohb import RungSampler
from sweeps.search.samplers.qmc import CoveringSampler
from sweeps.search.samplers.reseeded import ReseededSampler
from sweeps.search.samplers.transfer import EarlierTrials, WarmStartedCmaEs, WarmStartSampler
from sweeps.space.distributions import Space


def build_sampler(sampler: Sampler, seed: int, space: Space, earlier: EarlierTrials | None = None) -> BaseSampler:
    """A seeded sampler: with one trial at a time it makes the same suggestions again, also where a search was
    interrupted in between (a custom sampler: only if it needs no memory of its own).

    Args:
        sampler: Its config.
        seed: Of the search.
        space: To sample.
        earlier: Trials of earlier sweeps, from which TPE, GP, CMA-ES and BOHB can learn.

    Raises:
        ConfigError: A custom sampler cannot be made.
    """

    if isinstance(sampler, BOHBSampler):
        model = TPESampler(kind="tpe", startup_trials=sampler.startup_trials)
        return RungSampler(build_sampler(model, seed, space, earlier), sampler.startup_trials)
    if isinstance(sampler, CustomSampler):
        made = _custom(sampler, seed)
        return ReseededSampler(lambda seed_of_trial: made, seed)

    def make(seed_of_trial: int, sources: list[FrozenTrial] | None = None) -> BaseSampler:
        with warnings.catch_warnings():  # some are experimental in Optuna 5, which is no news to whoever chose one
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            if isinstance(sampler, QMCSampler):
                return CoveringSampler(sampler.sequence, space, scramble=seed, seed=seed_of_trial)
            return _make(sampler, seed_of_trial, sources)

    if earlier is not None and isinstance(sampler, CmaEsSampler):
        return WarmStartedCmaEs(make, seed, earlier)
    if earlier is not None and isinstance(sampler, TPESampler | GPSampler):
        return WarmStartSampler(ReseededSampler(make, seed), earlier)
    return ReseededSampler(make, seed)


def _make(sampler: Sampler, seed: int, sources: list[FrozenTrial] | None) -> BaseSampler:
    match sampler:
        case TPESampler(startup_trials=startup):
            # group: conditional parameters are modelled together where they occur together. constant_liar: trials
            # that still run count as bad, so that parallel suggestions differ.
            return optuna.samplers.TPESampler(
                seed=seed, multivariate=True, group=True, constant_liar=True, n_startup_trials=startup
            )
        case GPSampler(startup_trials=startup):
            rest = _for_the_rest(seed, startup)
            return optuna.samplers.GPSampler(
                seed=seed, n_startup_trials=startup, independent_sampler=rest, warn_independent_sampling=False
            )
        case CmaEsSampler(startup_trials=startup):
            rest = _for_the_rest(seed, startup)
            return optuna.samplers.CmaEsSampler(
                seed=seed,
                n_startup_trials=startup,
                independent_sampler=rest,
                warn_independent_sampling=False,
                source_trials=sources,
            )
        case NSGASampler(kind=kind, population=population):
            genetic = optuna.samplers.NSGAIISampler if kind == "nsga2" else optuna.samplers.NSGAIIISampler
            return genetic(seed=seed, population_size=population)
        case BruteForceSampler():
            return optuna.samplers.BruteForceSampler(seed=seed)
        case RandomSampler() | GridSampler():  # a grid is a list of points, which need no sampling
            return optuna.samplers.RandomSampler(seed=seed)
        case BOHBSampler() | QMCSampler() | CustomSampler():
            raise AssertionError(f"{sampler.kind} is built by build_sampler")


def _for_the_rest(seed: int, startup: int) -> BaseSampler:
    """What a sampler for plain ranges leaves out (conditional parameters, choices) is learned one by one."""
    return optuna.samplers.TPESampler(
        seed=seed, multivariate=False, n_startup_trials=max(startup, TPESampler(kind="tpe").startup_trials)
    )


def _custom(sampler: CustomSampler, seed: int) -> BaseSampler:
    key = f"search.sampler._target_={sampler.target}"
    module, _, name = sampler.target.rpartition(".")
    try:
        target = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{key}: cannot be imported ({error}); give the import path of a sampler") from None
    try:
        signature = inspect.signature(target)
        seeded = {"seed": seed} if "seed" in signature.parameters else {}
        made = target(**{**seeded, **sampler.arguments})
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{key}: cannot be called with search.sampler.arguments={sampler.arguments}: {error}; mend the arguments"
        ) from None
    if not isinstance(made, BaseSampler):
        raise ConfigError(f"{key}: makes a {type(made).__name__}; it must make an optuna.samplers.BaseSampler")
    return made


def shuffled(points: Sequence[Mapping[str, Any]], seed: int) -> list[dict[str, Any]]:
    """The points in a seeded random order, so that a grid that is cut short still covers its whole range."""
    shuffled = [dict(point) for point in points]
    random.Random(seed).shuffle(shuffled)
    return shuffled
