"""Private names of MLflow: its tables in SQL, the tracking URI of a block, its HTTP requests, its artifact stores, and
the saved views of its pages.

Importing this module does not import MLflow, which takes a second.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import unquote

TRIED_SCHEMAS = frozenset({"b7e2c1a4d9f3", "dc11669786a5", "f4a9b2c7d1e6"})
"""Versions of MLflow's tables (``alembic_version``) that our SQL queries were tried with: 3.16.1, 3.17.2, 3.18.0.

Tables of another version are read through MLflow's client, which is slower."""

REQUEST_SETTINGS = ("MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES")


def use_tracking_uri(uri: str) -> AbstractContextManager[None]:
    """Use a tracking URI for MLflow's functions inside a ``with`` block, and the one from before after it."""
    from mlflow.tracking._tracking_service.utils import _use_tracking_uri

    return _use_tracking_uri(uri)


def override_request_settings(override: Callable[[str], Any]) -> None:
    """Let MLflow's HTTP requests take their timeout and number of retries from a function.

    MLflow reads them from the environment at each request. Setting them there would change them for the user's own
    calls and for every process that is started meanwhile.

    Args:
        override: Returns the value for one of ``REQUEST_SETTINGS``, or None for the environment's.
    """
    from mlflow import environment_variables

    def first_of(name: str, plain: Callable[[], Any]) -> Callable[[], Any]:
        def get() -> Any:
            return plain() if (value := override(name)) is None else value

        return get

    for name in REQUEST_SETTINGS:
        variable = getattr(environment_variables, name)
        variable.get = first_of(name, variable.get)


def post(uri: str, endpoint: str, body: Mapping[str, Any]) -> None:
    """Send a request to a tracking server with the credentials, certificates and limits of MLflow's own calls.

    Args:
        uri: The server's address.
        endpoint: Path of the REST API.
        body: JSON document.

    Raises:
        MlflowException: The server refuses it or does not answer.
    """
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request_safe

    http_request_safe(get_default_host_creds(uri), endpoint, "POST", json=dict(body))  # type: ignore[no-untyped-call]


def make_folders_of_decoded_paths() -> None:
    """Let MLflow make the folder that SQLAlchemy writes to, which decodes ``%25`` in the path of a URI. Without this an
    empty folder with the undecoded name is made beside it."""
    from mlflow.store.db import utils

    make = getattr(utils, "_make_parent_dirs_if_sqlite", None)
    if make is not None:
        utils._make_parent_dirs_if_sqlite = lambda db_uri: make(unquote(db_uri))


def artifact_repository(uri: str, tracking_uri: str) -> Any:
    """Return MLflow's interface to a run's artifacts, which unlike its client can delete them.

    Args:
        uri: Artifact URI of the run.
        tracking_uri: URI of the store that the run is in.
    """
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    return get_artifact_repository(uri, tracking_uri=tracking_uri)


def artifact_files(repository: Any, folder: str) -> Iterator[Any]:
    """Yield all files in a folder of a run's artifacts and in the folders below, each with ``path`` and ``file_size``.

    Args:
        repository: As ``artifact_repository`` returns it.
        folder: Path of the folder.
    """
    for file in repository.list_artifacts(folder):
        if file.is_dir:
            yield from artifact_files(repository, file.path)
        else:
            yield file


# --- saved views ---------------------------------------------------------------------------------------------------
#
# A view of an experiment's runs (columns, order, filter, charts) is a tag of the experiment. The runs page shows those
# in its menu "Views", and opens the one whose id its address has. Everything here is the form in which the page itself
# saves a view; tests/compat/test_mlflow.py compares it with the scripts of the installed release.

SAVED_VIEW_PREFIX = "mlflow.sharedViewState."
"""Tag of an experiment with a saved view; the view's id follows."""
VIEW_IN_ADDRESS = "viewStateShareKey"
"""Name of a view's id in the query of the runs page."""
CHARTS_IN_ADDRESS = "compareRunsMode=CHART"
"""Part of the query with which the page shows charts instead of the table."""
MACHINE_LEARNING = "workflowType=machine_learning"
"""Part of the query with which MLflow shows its pages for training, and not those for language-model applications."""
EXPERIMENT_KIND_TAG = ("mlflow.experimentKind", "custom_model_development")
"""Tag of an experiment of training runs, for releases that choose their pages by it."""


ALWAYS_SHOWN = ("tags.`mlflow.runName`", "runDateAndNestInfo", "duration")
"""Ids of the columns that cannot be hidden: name, time of creation, duration."""
PIXELS_PER_LETTER = 6
"""Width of a column, so that its name is not cut."""
PARALLEL = "PARALLEL"
ONE_COLUMN = {"columns": 1, "cardHeight": 400}
"""Size of the charts in a section, in pixels, since many axes need the whole width; the default are three columns."""


def saved_view(name: str, state: Mapping[str, Any], created_ms: int) -> str:
    """Return the content of a view's tag.

    Args:
        name: Name in the menu.
        state: Its state, see ``view_state``.
        created_ms: Unix time in milliseconds. The menu lists the newest first.
    """
    compressed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    return json.dumps(
        {"name": name, "createdAt": created_ms, "updatedAt": created_ms, "state": f"deflate;{compressed}"}
    )


def saved_view_time(content: str) -> int:
    """Return the Unix time in milliseconds at which a view was saved; 0 for a content in another form."""
    try:
        return int(json.loads(content)["createdAt"])
    except (ValueError, TypeError, KeyError):
        return 0


def view_state(
    *,
    where: str,
    order_by: str,
    ascending: bool,
    columns: Sequence[str],
    group_by_tag: str | None,
    charts: Mapping[str, Sequence[Mapping[str, Any]]],
) -> dict[str, Any]:
    """Return the state of the runs page.

    Args:
        where: Condition on the runs, as for ``MlflowClient.search_runs``.
        order_by: Column by which they are sorted.
        ascending: Whether the smallest value comes first.
        columns: Columns besides those that are always shown (name, time of creation, duration), in their order.
        group_by_tag: Tag by whose values the runs are grouped; None for a plain list.
        charts: Charts by the name of their section, in the order of the page. The page adds a chart for each
            metric that none of them shows.
    """
    sections = [
        {"uuid": name, "name": name, "display": True, "isReordered": True, "deleted": False, "isGenerated": False}
        | (ONE_COLUMN if any(card["type"] == PARALLEL for card in several) else {})
        for name, several in charts.items()
    ]
    cards = [
        {"uuid": f"{name} {index}", "metricSectionId": name, "deleted": False, "isGenerated": False, **card}
        for name, several in charts.items()
        for index, card in enumerate(several)
    ]
    aggregate = "min" if ascending else "max"
    by_tag = {"mode": "tag", "groupByData": group_by_tag}
    return {
        "searchFilter": where,
        "orderByKey": order_by,
        "orderByAsc": ascending,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
        "selectedColumns": list(columns),
        "columnOrder": [*ALWAYS_SHOWN, *columns],
        "columnWidths": {column: max(100, PIXELS_PER_LETTER * len(column)) for column in columns},
        "runsHiddenMode": "SHOW_ALL",
        "groupBy": None if group_by_tag is None else {"aggregateFunction": aggregate, "groupByKeys": [by_tag]},
        "useGroupedValuesInCharts": False,
        "hideEmptyCharts": True,
        "compareRunCharts": cards,
        "compareRunSections": sections,
        "isAccordionReordered": True,
    }


def line_chart(metric: str) -> dict[str, Any]:
    """Return a chart of a metric against steps, with a line for each run.

    Charts that the page adds by itself have times on this axis for metrics below ``system/``.
    """
    return {
        "type": "LINE",
        "metricKey": metric,
        "selectedMetricKeys": [metric],
        "runsCountToCompare": 100,
        "xAxisKey": "step",
        "useGlobalXaxisKey": False,
        "selectedXAxisMetricKey": "",
        "xAxisScaleType": "linear",
        "scaleType": "linear",
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "range": {},
        "lineSmoothness": 0,
        "useGlobalLineSmoothing": True,
        "ignoreOutliers": False,
    }


def parallel_coordinates(parameters: Sequence[str], metrics: Sequence[str]) -> dict[str, Any]:
    """Return a chart of parallel coordinates of all runs."""
    return {
        "type": PARALLEL,
        "selectedParams": list(parameters),
        "selectedMetrics": list(metrics),
        "showAllRuns": True,
        "runsCountToCompare": 100,
    }
