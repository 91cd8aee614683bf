"""How the next trial is chosen, and which trials go on."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps.search.advisors.failures import FailureAdvisor as FailureAdvisor
    from sweeps.search.advisors.memory import MemoryEstimate as MemoryEstimate
    from sweeps.search.advisors.priors import PriorAdvisor as PriorAdvisor
    from sweeps.search.samplers.bohb import RungSampler as RungSampler
    from sweeps.search.samplers.build import build_sampler as build_sampler
    from sweeps.search.samplers.earlier_trials import load_earlier as load_earlier
    from sweeps.search.samplers.transfer import EarlierTrials as EarlierTrials
    from sweeps.search.samplers.transfer import WarmStartSampler as WarmStartSampler
    from sweeps.search.samplers.transfer import points_again as points_again
    from sweeps.search.searcher import OptunaSearcher as OptunaSearcher

MODULES = {
    "EarlierTrials": "samplers.transfer",
    "FailureAdvisor": "advisors.failures",
    "MemoryEstimate": "advisors.memory",
    "OptunaSearcher": "searcher",
    "PriorAdvisor": "advisors.priors",
    "RungSampler": "samplers.bohb",
    "WarmStartSampler": "samplers.transfer",
    "build_sampler": "samplers.build",
    "load_earlier": "samplers.earlier_trials",
    "points_again": "samplers.transfer",
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
