"""Names of sweeps and ids of their trials, read from MLflow's SQLite file. Servers are not asked, since they may be
slow."""

from __future__ import annotations

from sweeps import constants
from sweeps.completion.candidate import Candidate
from sweeps.errors import SweepsError
from sweeps.tracking.reader import list_sweeps
from sweeps.tracking.store import fetch_runs
from sweeps.tracking.uris import default_uri


def sweep_names(tracking_uri: str | None) -> list[Candidate]:
    """Return the sweeps, the newest first."""
    uri = tracking_uri or default_uri()
    if not uri.startswith("sqlite:"):
        return []
    try:
        return [Candidate(each.sweep, f"{each.conf}, {each.status}") for each in list_sweeps(uri)]
    except SweepsError:
        return []


def trial_ids(tracking_uri: str | None, sweep: str | None) -> list[Candidate]:
    uri = tracking_uri or default_uri()
    if not uri.startswith("sqlite:") or not sweep:
        return []
    try:
        runs = fetch_runs(uri, {constants.TAG_SWEEP: sweep, constants.TAG_KIND: "trial"})
    except SweepsError:
        return []
    ids = {run.tags.get(constants.TAG_TRIAL, ""): run.tags.get(constants.TAG_STATE, "") for run in runs}
    return [Candidate(trial, state) for trial, state in sorted(ids.items()) if trial]
