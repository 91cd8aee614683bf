"""Private names of MLflow: its SQL tables, a temporary tracking URI, its HTTP requests and its artifact stores.

Importing this module does not import MLflow, which takes a second.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import unquote

TRIED_SCHEMAS = frozenset({"b7e2c1a4d9f3", "dc11669786a5", "f4a9b2c7d1e6"})
"""Versions of MLflow's tables (``alembic_version``) with which our SQL statements were tested: 3.16.1, 3.17.2, 3.18.0.

Tables of another version are read and written through MLflow's client, which is slower."""

REQUEST_SETTINGS = ("MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES")


def use_tracking_uri(uri: str) -> AbstractContextManager[None]:
    """Use a tracking URI for MLflow's functions inside a ``with`` block, and restore the previous one afterwards."""
    from mlflow.tracking._tracking_service.utils import _use_tracking_uri

    return _use_tracking_uri(uri)


def override_request_settings(override: Callable[[str], Any]) -> None:
    """Make MLflow's HTTP requests take each of ``REQUEST_SETTINGS`` from a function, which returns None for the
    environment's.

    MLflow reads these settings from the environment at each request. Setting them there would change them for the
    user's own calls and for every process that is started meanwhile."""
    from mlflow import environment_variables

    def first_of(name: str, plain: Callable[[], Any]) -> Callable[[], Any]:
        def get() -> Any:
            return plain() if (value := override(name)) is None else value

        return get

    for name in REQUEST_SETTINGS:
        variable = getattr(environment_variables, name)
        variable.get = first_of(name, variable.get)


def post(uri: str, endpoint: str, body: Mapping[str, Any]) -> None:
    """Send JSON to an endpoint of a tracking server's REST API with the credentials, certificates and limits of
    MLflow's own calls.

    Raises:
        MlflowException: The server refuses it or does not answer.
    """
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request_safe

    http_request_safe(get_default_host_creds(uri), endpoint, "POST", json=dict(body))  # type: ignore[no-untyped-call]


def accepts(points: Iterable[tuple[str, float, int, int]], params: Mapping[str, str], tags: Mapping[str, str]) -> bool:
    """Whether MLflow accepts metric values (name, value, milliseconds and step), parameters and tags as they are."""
    from mlflow.exceptions import MlflowException

    validation: Any = importlib.import_module("mlflow.utils.validation")
    try:
        for point in points:
            validation._validate_metric(*point)
        return all(
            (checked.key, checked.value) == (name, text)
            for check, texts in ((validation._validate_param, params), (validation._validate_tag, tags))
            for name, text in texts.items()
            for checked in [check(name, text)]
        )
    except MlflowException:
        return False


def run_artifacts(root: str, run_id: str) -> str:
    """Return the artifact folder of a run, given that of its experiment."""
    from mlflow.utils.uri import append_to_uri_path

    return str(append_to_uri_path(root, run_id, "artifacts"))  # type: ignore[no-untyped-call]


def make_folders_of_decoded_paths() -> None:
    """Make MLflow decode ``%25`` in the path of an SQLite URI before it creates the folder, as SQLAlchemy does.
    Otherwise it also creates an empty folder with the undecoded name."""
    from mlflow.store.db import utils

    make = getattr(utils, "_make_parent_dirs_if_sqlite", None)
    if make is not None:
        utils._make_parent_dirs_if_sqlite = lambda db_uri: make(unquote(db_uri))


def artifact_repository(uri: str, tracking_uri: str) -> Any:
    """Return MLflow's interface to a run's artifacts, which can also delete them."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    return get_artifact_repository(uri, tracking_uri=tracking_uri)


def download_file(repository: Any, path: str, target: str) -> None:
    """Download one artifact in this thread, with its limits of requests. Unlike MLflow's public functions, it raises
    the error of the artifact store itself."""
    repository._download_file(path, target)


def artifact_files(repository: Any, folder: str) -> Iterator[Any]:
    """Yield all files of a run's artifacts in a folder and in the folders below, each with ``path`` and
    ``file_size``."""
    for file in repository.list_artifacts(folder):
        if file.is_dir:
            yield from artifact_files(repository, file.path)
        else:
            yield file


EXPERIMENT_KIND_TAG = ("mlflow.experimentKind", "custom_model_development")
"""Tag of an experiment of training runs, for releases that choose their pages by it."""
