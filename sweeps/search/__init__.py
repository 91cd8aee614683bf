"""How the next trial is chosen, and which trials go on."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps.search.earlier import load_earlier as load_earlier
    from sweeps.search.failures import FailureAdvisor as FailureAdvisor
    from sweeps.search.fidelity import RungSampler as RungSampler
    from sweeps.search.memory import MemoryEstimate as MemoryEstimate
    from sweeps.search.priors import PriorAdvisor as PriorAdvisor
    from sweeps.search.samplers import build_sampler as build_sampler
    from sweeps.search.searcher import OptunaSearcher as OptunaSearcher
    from sweeps.search.warm_start import EarlierTrials as EarlierTrials
    from sweeps.search.warm_start import WarmStartSampler as WarmStartSampler
    from sweeps.search.warm_start import points_again as points_again

MODULES = {
    "EarlierTrials": "warm_start",
    "FailureAdvisor": "failures",
    "MemoryEstimate": "memory",
    "OptunaSearcher": "searcher",
    "PriorAdvisor": "priors",
    "RungSampler": "fidelity",
    "WarmStartSampler": "warm_start",
    "build_sampler": "samplers",
    "load_earlier": "earlier",
    "points_again": "warm_start",
}

__all__ = [
    "EarlierTrials",
    "FailureAdvisor",
    "MemoryEstimate",
    "OptunaSearcher",
    "PriorAdvisor",
    "RungSampler",
    "WarmStartSampler",
    "build_sampler",
    "load_earlier",
    "points_again",
]


def __getattr__(name: str) -> Any:
    if name in MODULES:  # late: they import ray and optuna
        return getattr(importlib.import_module(f"sweeps.search.{MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
