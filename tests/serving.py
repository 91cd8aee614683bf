"""A service for tests of what it answers: its application, without the threads that act by themselves."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from recording import record_small_sweep
from request_loop import client_of_app
from service_databases import make_service_database
from stores import copy_recorded, make_store

from sweeps.compose.hydra_composition import compose_sweep
from sweeps.compose.search_path import ConfSearchPath
from sweeps.compose.service_config import compose_service
from sweeps.errors import SweepsError
from sweeps.service.api.app import make_app
from sweeps.service.app_context import AppContext
from sweeps.service.auth import tokens
from sweeps.service.auth.permissions import Role
from sweeps.service.database.engine import writing
from sweeps.service.queue import jobs
from sweeps.service.queue.job_requests import Run
from sweeps.service.queue.plan_processes import Planner

API = "/api/v1"
HERE = "http://127.0.0.1:8642"
Asking = Callable[..., TestClient]


class PlannerHere(Planner):
    """Makes plans in this process, from arguments to results that have been pickled as on the way to another one. The
    processes are tested in ``test_plan_processes.py`` and ``test_serve.py``."""

    def _run(self, work: Callable[..., Any], sweep_exists: Callable[[str], bool], arguments: tuple[Any, ...]) -> Any:
        work, arguments = pickle.loads(pickle.dumps((work, arguments)))
        try:
            result = work(sweep_exists, *arguments)
        except SweepsError as error:
            raise pickle.loads(pickle.dumps(error)) from None
        return pickle.loads(pickle.dumps(result))


class Api:
    """A service without its threads: what is submitted stays in the queue."""

    def __init__(self, uri: str, *tokens: str, plans_elsewhere: bool = False) -> None:
        """Make a service of a store with more tokens of its config, as ``serve`` takes it. Its plans are made in this
        process, or with ``plans_elsewhere`` in processes of their own, as those of ``serve`` are."""
        self.uri = uri
        config = compose_service([f"tracking_uri={uri}", *tokens], [])
        make_service_database(config.database)
        self.service = AppContext(config)
        if not plans_elsewhere:
            self.service.planner = PlannerHere(config.access.plans_at_once, config.access.plan_within_s)
        self.app = make_app(self.service)

    def client(self, token: str | None = None, **more: Any) -> TestClient:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return client_of_app(self.app, base_url=HERE, headers=headers, **more)

    def token(self, user: str, role: Role, *projects: str) -> str:
        with writing(self.service.database) as connection:
            return tokens.create(connection, user, role, self.service.clock.now(), projects=projects)[1]

    def submit(self, sweep: str, user: str = "local") -> jobs.Job:
        with writing(self.service.database) as connection:
            return jobs.submit(connection, Run(conf="digits"), sweep, user=user, project=user, now=1.0)

    def close(self) -> None:
        self.service.database.dispose()


def new_api(folder: Path, *tokens: str, **options: Any) -> Api:
    """A service with all that it has in one folder, whose store is empty if there was none. Takes what ``Api`` takes;
    of two values of a key, the last holds."""
    make_store(folder / "mlflow.db")
    places = (f"database=sqlite:///{folder}/service.db", f"output_dir={folder}/outputs")
    return Api(f"sqlite:///{folder}/mlflow.db", *places, *tokens, **options)


@contextmanager
def serving(folder: Path, *tokens: str, **options: Any) -> Iterator[Api]:
    """A service with all that it has in one folder: Ada's sweep ``theirs`` (job 1), Bob's ``mine`` (job 2), and
    ``made-by-hand``, which nobody submitted. Takes what ``Api`` takes."""
    uri = copy_recorded("served", _record_served, folder)
    patch = pytest.MonkeyPatch()
    patch.setenv("MLFLOW_TRACKING_URI", uri)  # as `serve` does
    api = new_api(folder, *tokens, **options)
    try:
        for sweep, user in (("theirs", "ada"), ("mine", "bob")):
            api.submit(sweep, user)
        yield api
    finally:
        api.close()
        patch.undo()


def _record_served(uri: str) -> None:
    config = compose_sweep("digits", [f"tracking.uri={uri}"], ConfSearchPath()).as_yaml()
    for sweep in ("theirs", "mine", "made-by-hand"):
        record_small_sweep(uri, sweep, config)
