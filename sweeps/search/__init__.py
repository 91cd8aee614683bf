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

_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_MODULES = {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as", _STUB, re.MULTILINE)}
"""Module of each name, as the stub for type checkers has it."""

__all__ = list(_MODULES)
ALIASES = {"points_again": "points_to_retry"}
"""Names of earlier releases."""


def __getattr__(name: str) -> Any:
    name = ALIASES.get(name, name)
    if name in _MODULES:  # imported when it is needed
        globals()[name] = found = getattr(importlib.import_module(_MODULES[name]), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
