"""Addresses of MLflow's pages, from the ``#`` on: after a server's address, or as links in a description."""

from __future__ import annotations

from urllib.parse import quote

from sweeps.compat.mlflow import CHARTS_IN_ADDRESS, MACHINE_LEARNING, VIEW_IN_ADDRESS
from sweeps.tracking.record import MlflowIds

ALL_SWEEPS_VIEW = "sweeps"
"""Id of the view of all sweeps of an experiment."""


def sweep_view_id(sweep: str) -> str:
    """Return the id of the view of a sweep's trials."""
    return f"{ALL_SWEEPS_VIEW}-{sweep}"


def trials_page(experiment_id: str, sweep: str, *, charts: bool = False) -> str:
    """Return the page of a sweep's trials in the view that is saved for it.

    Args:
        experiment_id: MLflow's id of its experiment.
        sweep: Name of the sweep.
        charts: Whether the page shows the view's charts, and not its table.
    """
    return _runs_page(experiment_id, sweep_view_id(sweep), *([CHARTS_IN_ADDRESS] if charts else []))


def all_sweeps_page(experiment_id: str) -> str:
    """Return the page of the trials of all sweeps of an experiment, grouped by sweep."""
    return _runs_page(experiment_id, ALL_SWEEPS_VIEW)


def run_page(ids: MlflowIds, artifact: str = "") -> str:
    """Return the page of a sweep's run.

    Args:
        ids: The sweep's ids.
        artifact: Path of an artifact that it shows; default: its overview.
    """
    tab = f"/artifacts/{artifact}" if artifact else ""
    return f"#/experiments/{ids.experiment_id}/runs/{ids.run_id}{tab}?{MACHINE_LEARNING}"


def _runs_page(experiment_id: str, view: str, *query: str) -> str:
    chosen = "&".join([f"{VIEW_IN_ADDRESS}={quote(view, safe='')}", *query, MACHINE_LEARNING])
    return f"#/experiments/{experiment_id}/runs?{chosen}"
