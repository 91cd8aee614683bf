"""Metrics of single steps, and notes, between the reports of a user's function; and the names that each report must
have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweeps_train.compat.ray_train import get_train_fn_utils
from sweeps_train.reports.reported_metrics import SYSTEM_METRICS


def log_step(step: int, metrics: Mapping[str, Any]) -> None:
    """Record metrics of a step of the trial that this worker trains.

    Unlike ``ray.train.report`` it is not an evaluation: no scheduler decides on it, and other workers need not call it.
    Under Ray Train without Sweeps it does nothing.

    Args:
        step: Number of optimizer steps done.
        metrics: Values by name; those that are not numbers are left out.
    """
    utils: Any = get_train_fn_utils()
    if hasattr(utils, "log_step"):  # a trial's; see ``ray_train.py``
        utils.log_step(step, metrics)


def note(text: str) -> None:
    """Show the user a line of text about this worker's trial. Only the first worker's lines are shown."""
    utils: Any = get_train_fn_utils()
    if hasattr(utils, "reporter"):
        utils.reporter.note(text)


def searched_metrics() -> tuple[str, ...]:
    """Return the metrics that the search reads from this function; none if it runs under Ray Train without Sweeps."""
    searched: tuple[str, ...] = getattr(get_train_fn_utils(), "searched", ())
    return tuple(name for name in searched if name not in SYSTEM_METRICS)
