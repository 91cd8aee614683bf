"""Hyperparameter search: which point is trained next, and which trials continue.

``OptunaSearcher`` serves any ``tune.Tuner``; the samplers and advisors here are made for it. Begin with ``searcher``;
``samplers``, ``advisors`` and ``schedulers`` are the parts that it works with, and ``stop_rules`` ends the search.
"""

from __future__ import annotations

import importlib
from typing import Any

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
    "load_earlier": "warm_start.earlier_trials",
    "points_to_retry": "search.samplers.transfer",
    "race": "search.confirmation_race",
}
ALIASES = {"points_again": "points_to_retry"}
"""Names of earlier releases."""


def __getattr__(name: str) -> Any:
    name = ALIASES.get(name, name)
    if name in MODULES:  # imported when it is needed, some of them from packages that are built on this one
        return getattr(importlib.import_module(f"sweeps.{MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
