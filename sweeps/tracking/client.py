"""MLflow client without its own output, whose calls fail within seconds instead of minutes."""

from __future__ import annotations

import logging
import math
import os
import re
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.compat.mlflow import make_folders_of_decoded_paths, override_request_settings
from sweeps.errors import TrackingUnreachable, UserError
from sweeps.texts.uri_passwords import redact_uri
from sweeps.tracking.new_store import making_tables
from sweeps.tracking.sqlite_file import check_sqlite_file
from sweeps.tracking.uris import DEFAULT, absolute, decodes_paths, sqlite_path, why_no_store

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)

CONNECT_WITHIN_S = 5
"""Maximum seconds for a tracking server to accept a connection."""
REACH_WITHIN_S = 10
"""Maximum seconds for a tracking server to answer; a new server needs some seconds for its first answer."""
ANSWER_WITHIN_S = 30
"""Maximum seconds for an answer with a page of runs or metrics."""
PATIENCE = "SWEEPS_WAIT_FOR_MLFLOW_S"
"""Environment variable with the seconds that ``run --resume`` and ``resume`` wait for MLflow. Jobs that a scheduler
starts by itself set it: at night nobody can start them again after a short outage."""
LOOK_AGAIN_S = 10.0
CALLS_AT_ONCE = 32
"""Maximum number of concurrent calls to a tracking server; a database is written by one thread."""

_FOR_A_PERSON = {
    "No module named 'psycopg": "install its driver: pip install 'ray-sweeps[postgresql]'",
    "No module named": "install its driver",
    "authentication failed": "correct the user or the password",
    "certificate": "name its certificate in MLFLOW_TRACKING_SERVER_CERT_PATH",
    "error code 401": "sign in with MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or a token",
    "error code 403": "ask for the permission, or sign in as another user with MLFLOW_TRACKING_USERNAME",
}
"""Signs of failures that do not pass by themselves, and what to do."""
_DEFAULT_PORTS = {"postgresql": 5432, "postgres": 5432, "mysql": 3306, "mssql": 1433}
_limits = threading.local()
_patience: ContextVar[tuple[float, float]] = ContextVar("_patience", default=(REACH_WITHIN_S, math.inf))
"""Seconds to wait for an answer, and a monotonic time: if any thread has failed to reach the store since then, this
context does not try again."""
_failed: dict[str, tuple[float, TrackingUnreachable]] = {}
"""Last failure to reach each store, with its monotonic time; removed when the store answers again."""


def connect(uri: str) -> MlflowClient:
    """Return a client of a tracking store after checking that it answers. Creates an SQLite store that does not exist.

    Raises:
        TrackingUnreachable: No connection within five seconds, no answer within ten (or ``reaching_within``), or the
            store can't be used.
    """
    within_s, since = _patience.get()
    failed, failure = _failed.get(uri, (-math.inf, None))
    if failure is not None and failed > since:
        raise failure.with_traceback(None)
    _prepare()
    from mlflow import MlflowClient, __version__

    _limit_requests_by_thread()
    if (path := sqlite_path(uri)) is not None:
        check_sqlite_file(path)
        _reopen_replaced_files()
    try:
        check_port(uri)
        with request_limits(within_s), making_tables(path, __version__):
            # MLflow opens the file again in each thread: after a change of the working folder a relative path would
            # be another file.
            client = MlflowClient(tracking_uri=absolute(uri))
            client.search_experiments(max_results=1)
    except Exception as error:
        failure = TrackingUnreachable(f"tracking.uri={redact_uri(uri)} {_explained(uri, error)}")
        _failed[uri] = (time.monotonic(), failure)
        raise failure from error
    _failed.pop(uri, None)
    return client


@contextmanager
def reaching_within(seconds: float) -> Iterator[None]:
    """Limit how long ``connect`` waits for an answer inside a ``with`` block, such as during a request to the service.
    ``connect`` does not wait at all if another thread has failed to reach the store since the block began."""
    before = _patience.set((seconds, time.monotonic()))
    try:
        yield
    finally:
        _patience.reset(before)


def waiting_time_s(variable: str) -> float:
    """Return the seconds to wait that an environment variable gives; 0 if it is unset or empty.

    Raises:
        UserError: Its value is no number.
    """
    given = os.environ.get(variable) or "0"
    try:
        return float(given)
    except ValueError:
        raise UserError(f"{variable}={given}: must be a number of seconds, such as 300") from None


def await_store(uri: str) -> None:
    """Wait until a tracking server answers, for at most the seconds in ``SWEEPS_WAIT_FOR_MLFLOW_S``, by default 0. If
    it does not, or the failure will not pass by itself, the next call raises it.

    Raises:
        UserError: ``SWEEPS_WAIT_FOR_MLFLOW_S`` is no number.
    """
    patience_s = waiting_time_s(PATIENCE)
    deadline, is_told = time.monotonic() + patience_s, False
    while sqlite_path(uri) is None and why_no_store(uri) is None and time.monotonic() < deadline:
        try:
            connect(uri)
        except TrackingUnreachable as error:
            if any(sign in str(error) for sign in _FOR_A_PERSON):
                return
            if not is_told:
                logger.warning("%s; waiting up to %.0f s (%s)", error, patience_s, PATIENCE)
            is_told = True
            time.sleep(LOOK_AGAIN_S)
        else:
            return


def _explained(uri: str, error: Exception) -> str:
    """Explain why a store cannot be used, and what to do."""
    if (no_store := why_no_store(uri)) is not None:
        return no_store
    why, advice = first_cause(error), f"start it, correct the address, or use {DEFAULT}"
    if sqlite_path(uri):
        advice = "check that the folder exists and can be written to"
    else:
        advice = next((known for sign, known in _FOR_A_PERSON.items() if sign in why), advice)
    return f"does not answer: {why}; {advice}"


def first_cause(error: BaseException, handled: BaseException | None = None) -> str:
    """Describe the first cause of an error in one line, without the errors that wrap it.

    Args:
        error: The error.
        handled: Error that was being handled when the call that failed began; Python chains it, but it is no cause.
    """
    *_, first = (error, *takewhile(lambda each: each is not handled, _chain(error)))
    lines = str(first).strip().splitlines()
    return lines[0][:300] if lines else type(first).__name__


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and the errors that it wraps."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@contextmanager
def request_limits(timeout_s: float, retries: int = 0, connect_s: float = CONNECT_WITHIN_S) -> Iterator[None]:
    """Limit the time and the retries of MLflow's HTTP requests of this thread inside a ``with`` block.

    By default the silent retries of one call may take four minutes. Limits in the environment take precedence.

    Args:
        timeout_s: Maximum seconds to wait for an answer.
        retries: Number of retries.
        connect_s: Maximum seconds to connect, and for the server to receive anything of a large request.
    """
    before = dict(_limits.__dict__)
    timeout = (min(connect_s, timeout_s), timeout_s)  # a pair, which `requests` takes too
    _limits.__dict__.update(MLFLOW_HTTP_REQUEST_TIMEOUT=timeout, MLFLOW_HTTP_REQUEST_MAX_RETRIES=retries)
    try:
        yield
    finally:
        _limits.__dict__.clear()
        _limits.__dict__.update(before)


@contextmanager
def reading_from(uri: str) -> Iterator[None]:
    """Limit MLflow's HTTP requests of this thread inside a ``with`` block that only reads, with one retry.

    Raises:
        TrackingUnreachable: The connection was lost, there was no answer within ``ANSWER_WITHIN_S``, or one of status
            500 or above.
    """
    with outages_named(uri), request_limits(ANSWER_WITHIN_S, retries=1):
        yield


@contextmanager
def outages_named(uri: str) -> Iterator[None]:
    """Convert errors of a server that does not answer to ``TrackingUnreachable`` inside a ``with`` block."""
    try:
        yield
    except Exception as error:
        if not any(map(_is_of_server, _chain(error))):
            raise
        raise TrackingUnreachable(f"tracking.uri={redact_uri(uri)} {_explained(uri, error)}") from error


def _is_of_server(error: BaseException) -> bool:
    """Whether a server has failed to answer a request, or could not be reached."""
    from requests import RequestException

    return isinstance(error, RequestException) and (error.response is None or error.response.status_code >= 500)


@cache
def _limit_requests_by_thread() -> None:
    override_request_settings(lambda name: None if name in os.environ else _limits.__dict__.get(name))


def artifact_location(uri: str, experiment: str) -> str | None:
    """Return the artifact folder of a new experiment in a local store: beside its database.

    None where MLflow's default is right: ``./mlruns`` for a database in the working folder, a server's own location.
    """
    path = sqlite_path(uri)
    if path is None:
        return None
    beside = path.absolute().parent
    folder = beside / "mlruns" / re.sub(r"[^\w.-]+", "_", experiment)
    if "%" in str(beside):  # MLflow would decode a plain path, and write into another folder
        return folder.as_uri()
    return None if beside == Path.cwd() else str(folder)


def check_port(uri: str) -> None:
    """Check that a database server accepts connections, if a tracking URI names one; without this check, its driver and
    MLflow may retry for minutes.

    Raises:
        OSError: The server does not accept a connection.
    """
    dialect = uri.partition("://")[0].partition("+")[0]
    if dialect not in _DEFAULT_PORTS:
        return
    import sqlalchemy

    address = sqlalchemy.make_url(uri)  # not urlsplit(): a password may have a slash
    if address.host:  # else it is a socket in a folder, or the hosts follow after `?`
        port = address.port or _DEFAULT_PORTS[dialect]
        socket.create_connection((address.host, port), timeout=CONNECT_WITHIN_S).close()
    engine = sqlalchemy.create_engine(uri)
    try:
        engine.connect().close()
    finally:
        engine.dispose()


@cache
def _reopen_replaced_files() -> None:
    """Make SQLAlchemy open an SQLite file again if another one has taken its place, such as a restored backup: SQLite
    refuses all writes to the open one. While the file is only away, it stays open, since to open it would make a new
    one."""
    from sqlalchemy import Engine, ExceptionContext, event

    def look(context: ExceptionContext) -> None:
        file = context.engine.url.database if context.engine is not None else None
        if "readonly database" in str(context.original_exception) and file is not None and Path(file).exists():
            context.is_disconnect = True

    event.listen(Engine, "handle_error", look)


@cache
def _prepare() -> None:
    # Before the import: telemetry starts with it. The address lines go to stdout, where only results belong.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    # By default ten connections are kept, and further ones are opened for each call.
    os.environ.setdefault("MLFLOW_HTTP_POOL_MAXSIZE", str(CALLS_AT_ONCE))
    import mlflow  # noqa: F401 - its import configures logging, which would undo what follows

    if decodes_paths():
        make_folders_of_decoded_paths()

    # MLflow's tables have it; where warnings are errors, there would be no store.
    warnings.filterwarnings("ignore", message="The ``noload`` loader strategy is deprecated")
    # The migrations of a new SQLite store; and MLflow logs each failed write with a traceback, then raises it.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    # No warnings about retries: the error after the last one is reported.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
