"""Sweeps: hyperparameter search for distributed training, on Ray Tune, Ray Train, Optuna and MLflow.

The functions here do what the command line does; begin with ``run`` and ``load``. A wrong request raises ``UserError``
before anything starts. Sweeps are looked up by name in the MLflow store given as ``tracking_uri``, else in the one that
the environment variable ``MLFLOW_TRACKING_URI`` names, else in ``mlflow.db`` in the working folder.

Importing this package is cheap: a name is loaded from its module when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sweeps.api.manage import clean, export, register, save_model, write_report
    from sweeps.api.read import best, compare, confs, curves, importance, list_sweeps, load, logs, trials, watch
    from sweeps.api.read import list_sweeps as list  # noqa: A004, F401 - its earlier name
    from sweeps.api.run import dry_run, extend, reproduce, resume, retrain, run, stop
    from sweeps.api.sweep import Sweep
    from sweeps.cleaning.cleaning import Cleaning
    from sweeps.driver.sweep_state import View
    from sweeps.errors import ConfigError, SweepsError, TrackingUnreachable, UnknownName, UserError
    from sweeps.plan.plan import Plan
    from sweeps.registry.register import RegisteredModel
    from sweeps.report.comparison import Comparison
    from sweeps.tracking.record import SweepRecord, SweepSummary, TrialRecord

__all__ = [
    "Cleaning",
    "Comparison",
    "ConfigError",
    "Plan",
    "RegisteredModel",
    "Sweep",
    "SweepRecord",
    "SweepSummary",
    "SweepsError",
    "TrackingUnreachable",
    "TrialRecord",
    "UnknownName",
    "UserError",
    "View",
    "best",
    "clean",
    "compare",
    "confs",
    "curves",
    "dry_run",
    "export",
    "extend",
    "importance",
    "list_sweeps",
    "load",
    "logs",
    "register",
    "reproduce",
    "resume",
    "retrain",
    "run",
    "save_model",
    "stop",
    "trials",
    "watch",
    "write_report",
]

_MODULES = {
    "api.manage": ("clean", "export", "register", "save_model", "write_report"),
    "api.read": ("best", "compare", "confs", "curves", "importance", "list_sweeps", "load", "logs", "trials", "watch"),
    "api.run": ("dry_run", "extend", "reproduce", "resume", "retrain", "run", "stop"),
    "api.sweep": ("Sweep",),
    "driver.sweep_state": ("View",),
    "errors": ("ConfigError", "SweepsError", "TrackingUnreachable", "UnknownName", "UserError"),
    "plan.plan": ("Plan",),
    "registry.register": ("RegisteredModel",),
    "report.comparison": ("Comparison",),
    "cleaning.cleaning": ("Cleaning",),
    "tracking.record": ("SweepRecord", "SweepSummary", "TrialRecord"),
}
_MODULE_OF = {name: f"sweeps.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("ray-sweeps")
    if name == "list":  # the earlier name of list_sweeps
        return __getattr__("list_sweeps")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> Sequence[str]:
    return sorted({*globals(), *__all__})
