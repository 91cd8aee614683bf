"""Reads runs of an MLflow experiment that another program recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sweeps.config.warm_start import MLflowExperiment
from sweeps.errors import TrackingUnreachable, UserError
from sweeps.texts.suggestions import did_you_mean
from sweeps.tracking.client import connect, first_cause, reading_from
from sweeps.tracking.metric_history import LARGEST
from sweeps.tracking.mlflow_characters import from_name, to_name, whole_parameters
from sweeps.tracking.sqlite_file import queryable_file, reading
from sweeps.tracking.store import PAGE, all_pages
from sweeps.tracking.uris import sqlite_path
from sweeps.warm_start.other_trial import OtherSearch, OtherTrial, address, existing_file

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

FINISHED = "FINISHED"


def read_experiment(key: str, source: MLflowExperiment, tracking_uri: str, metric: str) -> OtherSearch:
    """Read the runs of an experiment, with the last value of the metric. The source may leave the tracking URI and the
    metric to the sweep.

    Raises:
        UserError: The server, the experiment or the metric does not exist, or the filter is wrong.
    """
    uri = _existing_store(key, source, tracking_uri)
    try:
        client = connect(uri)
    except TrackingUnreachable as error:
        raise TrackingUnreachable(f"{key}.uri: {str(error).removeprefix('tracking.uri=')}") from error
    with reading_from(uri):
        runs = _runs(key, source, client)
    name = metric if source.metric is None else source.metric
    known = {each for run in runs for each in run.data.metrics}
    if runs and to_name(name) not in known:
        shown = map(from_name, known)
        raise UserError(f"{key}.metric={name}: none of the {len(runs)} runs has it{did_you_mean(name, shown)}")
    return OtherSearch(source.experiment, [_trial(run, name) for run in runs], source.mode, name)


def check_experiment(key: str, source: MLflowExperiment, tracking_uri: str) -> None:
    """Check that an experiment in an SQLite store exists, without MLflow, whose import takes seconds.

    Raises:
        UserError: The store or the experiment does not exist.
    """
    path = queryable_file(_existing_store(key, source, tracking_uri))
    if path is None:
        return
    with reading(path) as database:
        names = [name for (name,) in database.execute("SELECT name FROM experiments WHERE lifecycle_stage = 'active'")]
    if source.experiment not in names:
        raise _unknown(key, source, names)


def _existing_store(key: str, source: MLflowExperiment, tracking_uri: str) -> str:
    uri = tracking_uri if source.uri is None else address(f"{key}.uri", source.uri)
    if (path := sqlite_path(uri)) is not None:  # MLflow would create it
        existing_file(f"{key}.uri", path)
    return uri


def _unknown(key: str, source: MLflowExperiment, known: Sequence[str]) -> UserError:
    return UserError(
        f"{key}.experiment={source.experiment}: there is no such experiment{did_you_mean(source.experiment, known)}"
    )


def _runs(key: str, source: MLflowExperiment, client: MlflowClient) -> Sequence[Run]:
    experiment = client.get_experiment_by_name(source.experiment)
    if experiment is None:
        known = all_pages(lambda token: client.search_experiments(max_results=PAGE, page_token=token))
        raise _unknown(key, source, [each.name for each in known])
    ids, wanted = [experiment.experiment_id], source.filter or ""
    try:
        runs = all_pages(lambda token: client.search_runs(ids, wanted, max_results=PAGE, page_token=token))
    except Exception as error:
        if source.filter is None:
            raise
        raise UserError(f"{key}.filter={source.filter!r}: MLflow refuses it ({first_cause(error)})") from error
    if not runs:
        raise UserError(
            f"{key}.experiment={source.experiment}: it has no runs{' that match the filter' if wanted else ''}"
        )
    return runs


def _trial(run: Run, metric: str) -> OtherTrial:
    unusable = None if run.info.status == FINISHED else f"status {run.info.status}"
    params = whole_parameters(run.data.params, run.data.tags)
    value = run.data.metrics.get(to_name(metric))
    return OtherTrial(params, value if value is not None and abs(value) < LARGEST else None, unusable)
