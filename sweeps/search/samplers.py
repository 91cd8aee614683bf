"""Optuna samplers by config."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.samplers import BaseSampler

from sweeps.config.search import GridSampler, RandomSampler, Sampler, TPESampler
from sweeps.errors import ConfigError


def build_sampler(sampler: Sampler, seed: int) -> BaseSampler:
    """A seeded sampler: with one trial at a time it makes the same suggestions again."""
    match sampler:
        case TPESampler(startup_trials=startup_trials):
            # group: conditional parameters are modelled together where they occur together. constant_liar: trials
            # that still run count as bad, so that parallel suggestions differ.
            with warnings.catch_warnings():  # group is experimental in Optuna 5, which is said at every start
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                return optuna.samplers.TPESampler(
                    seed=seed, multivariate=True, group=True, constant_liar=True, n_startup_trials=startup_trials
                )
        case RandomSampler() | GridSampler():  # a grid is a list of points, which need no sampling
            return optuna.samplers.RandomSampler(seed=seed)
        case _:
            raise ConfigError(f"search.sampler.kind={sampler.kind}: not there yet")


def shuffled(points: Sequence[Mapping[str, Any]], seed: int) -> list[dict[str, Any]]:
    """The points in a seeded random order, so that a grid that is cut short still covers its whole range."""
    shuffled = [dict(point) for point in points]
    random.Random(seed).shuffle(shuffled)
    return shuffled
