"""Addresses of MLflow's server and its pages; those of pages begin with ``#``, to append to the server's address or to
use as links in a description."""

from __future__ import annotations

from urllib.parse import urlencode

from sweeps.constants import BEST_PREFIX, TAG_KIND, TAG_SWEEP
from sweeps.texts.uri_passwords import without_credentials
from sweeps.tracking.mlflow_characters import to_name
from sweeps.tracking.record import MlflowIds

MACHINE_LEARNING = {"workflowType": "machine_learning"}
"""Query parameters with which MLflow shows its pages for training instead of those for language-model applications."""
ANY_TIME = {"startTime": "ALL"}
"""Query parameters that override the time filter that the browser remembers for a table of runs."""
CHARTS = {"compareRunsMode": "CHART"}
"""Query parameters with which a table of runs is shown as charts."""


def server_address(tracking_uri: str) -> str | None:
    """Return the address of a tracking server for people, without a password; None for a store without a server."""
    is_server = tracking_uri.startswith(("http://", "https://"))
    return without_credentials(tracking_uri).rstrip("/") if is_server else None


def trials_page(experiment_id: str, sweep: str, metric: str, mode: str, *, charts: bool = False) -> str:
    """Return the page of a sweep's trials, the best by the first objective first: a table, or charts."""
    query = {
        "searchFilter": f"tags.`{TAG_SWEEP}` = '{sweep}' and tags.`{TAG_KIND}` = 'trial'",
        "orderByKey": f"metrics.`{to_name(BEST_PREFIX + metric)}`",
        "orderByAsc": str(mode == "min").lower(),
    }
    return f"{experiment_page(experiment_id)}&{urlencode(query | (CHARTS if charts else {}))}"


def experiment_page(experiment_id: str) -> str:
    """Return the page of all sweeps of an experiment, with their trials below them."""
    return f"#/experiments/{experiment_id}/runs?{urlencode(MACHINE_LEARNING | ANY_TIME)}"


def run_page(ids: MlflowIds, artifact: str = "") -> str:
    """Return the page of a sweep's run.

    Args:
        artifact: Path of an artifact that the page shows; default: the run's overview.
    """
    tab = f"/artifacts/{artifact}" if artifact else ""
    return f"#/experiments/{ids.experiment_id}/runs/{ids.run_id}{tab}?{urlencode(MACHINE_LEARNING)}"
