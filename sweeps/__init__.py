"""Sweeps: hyperparameter search for distributed training, on Ray Tune, Ray Train, Optuna and MLflow.

Importing this is cheap; ``run`` and ``load`` import what they need.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sweeps.tracking.record import SweepRecord

__all__ = ["load", "run"]


def run(
    conf: str, overrides: Sequence[str] = (), *, name: str | None = None, config_dirs: Sequence[str | Path] = ()
) -> SweepRecord:
    """Run a sweep to its end, with one line on stderr for every event.

    Args:
        conf: Name of a config, as in ``conf=NAME``.
        overrides: Hydra overrides, as on the command line.
        name: Name of the sweep; default: the config's and the time.
        config_dirs: Folders of configs to look into before ours.

    Raises:
        UserError: A mistake in what was asked; nothing was started.
    """
    from rich.console import Console

    from sweeps.plan import make_plan
    from sweeps.report.live import PlainView
    from sweeps.sweep import run as run_plan

    command = f"sweeps.run({conf!r}, {list(overrides)!r})"
    plan = make_plan([f"conf={conf}", *overrides], [Path(each) for each in config_dirs], name, command)
    with PlainView(Console(stderr=True)) as view:
        return run_plan(plan, view)


def load(name: str, *, tracking_uri: str | None = None) -> SweepRecord:
    """An earlier sweep, read from MLflow.

    Args:
        name: The sweep's name.
        tracking_uri: Default: what ``MLFLOW_TRACKING_URI`` names, else ``mlflow.db`` in the working folder.

    Raises:
        UnknownName: There is no such sweep.
    """
    from sweeps.tracking import default_uri
    from sweeps.tracking.reader import load_sweep

    return load_sweep(tracking_uri or default_uri(), name)
