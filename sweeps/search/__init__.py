"""Hyperparameter search: decides which point is trained next, and which trials continue.

``OptunaSearcher`` serves any ``tune.Tuner``; the samplers and advisors here are made for it. Begin with
``study_search``; it works with ``samplers``, ``advisors`` and ``schedulers``, and ``stop_rules`` ends the search.
Nothing here knows Tune or MLflow.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
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

ALIASES = {"points_again": "points_to_retry"}
"""Names from earlier releases, and the functions that they stand for."""


def __getattr__(name: str) -> Any:
    name = ALIASES.get(name, name)
    if name in __all__:  # imported when it is needed, from the module that the stub names
        stub = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
        (module,) = re.findall(rf"^from (\S+) import {name} as", stub, re.MULTILINE)
        globals()[name] = found = getattr(importlib.import_module(module), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
