"""Hyperparameter search: which point is trained next, and which trials continue.

``OptunaSearcher`` serves any ``tune.Tuner``; the samplers and advisors here are made for it. Begin with ``searcher``;
``samplers``, ``advisors`` and ``schedulers`` are the parts that it works with, and ``stop_rules`` ends the search.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps.config.space import CategoricalDistribution as CategoricalDistribution
    from sweeps.config.space import FloatDistribution as FloatDistribution
    from sweeps.config.space import IntDistribution as IntDistribution
    from sweeps.config.space import OrdinalDistribution as OrdinalDistribution
    from sweeps.config.warm_start import MLflowExperiment as MLflowExperiment
    from sweeps.config.warm_start import OptunaStudy as OptunaStudy
    from sweeps.config.warm_start import TrialTable as TrialTable
    from sweeps.search.advisors.advisor import Advisor as Advisor
    from sweeps.search.advisors.failures import FailureAdvisor as FailureAdvisor
    from sweeps.search.advisors.memory import MemoryEstimate as MemoryEstimate
    from sweeps.search.advisors.priors import PriorAdvisor as PriorAdvisor
    from sweeps.search.confirmation_race import Race as Race
    from sweeps.search.confirmation_race import race as race
    from sweeps.search.expected_improvement import ExpectedImprovement as ExpectedImprovement
    from sweeps.search.point_source import PointOptions as PointOptions
    from sweeps.search.samplers.bohb import PredictedSampler as PredictedSampler
    from sweeps.search.samplers.bohb import RungSampler as RungSampler
    from sweeps.search.samplers.build_sampler import build_sampler as build_sampler
    from sweeps.search.samplers.curves import CurveSampler as CurveSampler
    from sweeps.search.samplers.earlier_sweep import EarlierSweep as EarlierSweep
    from sweeps.search.samplers.earlier_trials import load_earlier as load_earlier
    from sweeps.search.samplers.transfer import EarlierTrials as EarlierTrials
    from sweeps.search.samplers.transfer import WarmStartSampler as WarmStartSampler
    from sweeps.search.samplers.transfer import points_to_retry as points_to_retry
    from sweeps.search.searcher import OptunaSearcher as OptunaSearcher
    from sweeps.space.distributions import Space as Space

__all__ = [
    "Advisor",
    "CategoricalDistribution",
    "CurveSampler",
    "EarlierSweep",
    "EarlierTrials",
    "ExpectedImprovement",
    "FailureAdvisor",
    "FloatDistribution",
    "IntDistribution",
    "MLflowExperiment",
    "MemoryEstimate",
    "OptunaSearcher",
    "OptunaStudy",
    "OrdinalDistribution",
    "PointOptions",
    "PredictedSampler",
    "PriorAdvisor",
    "Race",
    "RungSampler",
    "Space",
    "TrialTable",
    "WarmStartSampler",
    "build_sampler",
    "load_earlier",
    "points_to_retry",
    "race",
]

MODULES = {
    "Advisor": "search.advisors.advisor",
    "CategoricalDistribution": "config.space",
    "CurveSampler": "search.samplers.curves",
    "EarlierSweep": "search.samplers.earlier_sweep",
    "EarlierTrials": "search.samplers.transfer",
    "ExpectedImprovement": "search.expected_improvement",
    "FailureAdvisor": "search.advisors.failures",
    "FloatDistribution": "config.space",
    "IntDistribution": "config.space",
    "MLflowExperiment": "config.warm_start",
    "MemoryEstimate": "search.advisors.memory",
    "OptunaSearcher": "search.searcher",
    "OptunaStudy": "config.warm_start",
    "OrdinalDistribution": "config.space",
    "PointOptions": "search.point_source",
    "PredictedSampler": "search.samplers.bohb",
    "PriorAdvisor": "search.advisors.priors",
    "Race": "search.confirmation_race",
    "RungSampler": "search.samplers.bohb",
    "Space": "space.distributions",
    "TrialTable": "config.warm_start",
    "WarmStartSampler": "search.samplers.transfer",
    "build_sampler": "search.samplers.build_sampler",
    "load_earlier": "search.samplers.earlier_trials",
    "points_to_retry": "search.samplers.transfer",
    "race": "search.confirmation_race",
}
ALIASES = {"points_again": "points_to_retry"}
"""Names of earlier releases."""


def __getattr__(name: str) -> Any:
    name = ALIASES.get(name, name)
    if name in MODULES:  # imported when it is needed: these modules import ray and optuna
        return getattr(importlib.import_module(f"sweeps.{MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
