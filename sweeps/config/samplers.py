"""Schemas of the samplers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config import STRICT, PositiveInt
from sweeps_train.config.reach import Import, Reach


@dataclass(config=STRICT, kw_only=True)
class TPESampler:
    """Tree-structured Parzen estimator (Bergstra et al., 2011; multivariate: Falkner et al., 2018), by Optuna."""

    kind: Literal["tpe"]
    startup_trials: PositiveInt = 8
    """Number of random trials before the model is used."""


@dataclass(config=STRICT, kw_only=True)
class BOHBSampler:
    """TPE that learns from the highest rung with enough trials, as in BOHB (Falkner et al., 2018,
    https://arxiv.org/abs/1807.01774); for Hyperband and ASHA."""

    kind: Literal["bohb"]
    startup_trials: PositiveInt = 8
    """Number of random trials before the model is used, and of trials on a rung before the model learns from it."""


@dataclass(config=STRICT, kw_only=True)
class CurveSampler:
    """Gaussian process of all learning curves so far, which learns how well early values predict late ones; for any
    scheduler, and for one objective or several. With the scheduler freeze_thaw it is ``search=sweeps``."""

    kind: Literal["curves"]
    startup_trials: PositiveInt = 8
    """Number of random trials that must have reported before the model is used."""


@dataclass(config=STRICT, kw_only=True)
class PredictedSampler(CurveSampler):
    """Alias kept from 0.2 for ``curves``."""

    kind: Literal["predicted"]  # type: ignore[assignment]


@dataclass(config=STRICT, kw_only=True)
class GPSampler:
    """Gaussian process with expected improvement, by Optuna: for few, expensive trials (up to a few hundred). Learns
    from finished trials; TPE samples conditional parameters."""

    kind: Literal["gp"]
    startup_trials: PositiveInt = 8
    """Number of random trials before the model is used."""


@dataclass(config=STRICT, kw_only=True)
class CmaEsSampler:
    """Covariance matrix adaptation (Hansen and Ostermeier, 2001), by the package cmaes through Optuna; for one
    objective. Learns from finished trials; TPE samples categorical and conditional parameters."""

    kind: Literal["cmaes"]
    startup_trials: PositiveInt = 1
    """Number of random trials before the model is used."""


@dataclass(config=STRICT, kw_only=True)
class NSGASampler:
    """Genetic algorithm for several objectives, by Optuna: NSGA-II (Deb et al., 2002), or NSGA-III (Deb and Jain, 2014)
    for more than three."""

    kind: Literal["nsga2", "nsga3"]
    population: Annotated[int, Field(ge=2)] = 50
    """Number of trials of a generation."""


@dataclass(config=STRICT, kw_only=True)
class QMCSampler:
    """Quasi-Monte Carlo: points that cover the space more evenly than random ones, by SciPy through Optuna. Includes
    conditional and categorical parameters."""

    kind: Literal["qmc"]
    sequence: Literal["sobol", "halton"] = "sobol"
    """Sequence of points; Sobol is best after a power of two of trials."""


@dataclass(config=STRICT, kw_only=True)
class RandomSampler:
    """Independent random points."""

    kind: Literal["random"]


@dataclass(config=STRICT, kw_only=True)
class GridSampler:
    """Every combination once, in random order; float parameters need a ``step``."""

    kind: Literal["grid"]


@dataclass(config=STRICT, kw_only=True)
class BruteForceSampler:
    """Every combination once, found during the search (define-by-run), by Optuna; float parameters need a ``step``."""

    kind: Literal["brute_force"]


@dataclass(config=STRICT, kw_only=True)
class CustomSampler:
    """Any other sampler of Optuna, or your own: ``_target_(**arguments)``."""

    kind: Literal["custom"]
    target: Import = Field(alias="_target_")
    """Import path of a subclass of ``optuna.samplers.BaseSampler``, or of a function that returns one."""
    arguments: Annotated[dict[str, Any], Reach.ARGUMENTS] = Field(default_factory=dict)
    """Keyword arguments of the sampler; ``seed`` is added if it accepts one."""


Sampler = Annotated[
    TPESampler
    | BOHBSampler
    | CurveSampler
    | PredictedSampler
    | GPSampler
    | CmaEsSampler
    | NSGASampler
    | QMCSampler
    | RandomSampler
    | GridSampler
    | BruteForceSampler
    | CustomSampler,
    Field(discriminator="kind"),
]
