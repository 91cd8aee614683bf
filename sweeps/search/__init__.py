"""How the next trial is chosen, and which trials go on."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps.search.failures import FailureAdvisor as FailureAdvisor
    from sweeps.search.fidelity import RungSampler as RungSampler
    from sweeps.search.priors import PriorAdvisor as PriorAdvisor
    from sweeps.search.samplers import build_sampler as build_sampler
    from sweeps.search.searcher import OptunaSearcher as OptunaSearcher

MODULES = {
    "FailureAdvisor": "failures",
    "OptunaSearcher": "searcher",
    "PriorAdvisor": "priors",
    "RungSampler": "fidelity",
    "build_sampler": "samplers",
}

__all__ = ["FailureAdvisor", "OptunaSearcher", "PriorAdvisor", "RungSampler", "build_sampler"]


def __getattr__(name: str) -> Any:
    if name in MODULES:  # late: they import ray and optuna
        return getattr(importlib.import_module(f"sweeps.search.{MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
