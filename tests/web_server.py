"""Web applications over real connections, in this process: a service that starts none of the sweeps that wait, MLflow's
server, and any other."""

from __future__ import annotations

import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from recording import free_port
from service_databases import make_service_database
from serving import PlannerHere
from stores import make_store
from waiting import wait_until

from sweeps.config.service import Service
from sweeps.service.api.app import make_app
from sweeps.service.app_context import AppContext


def new_service(folder: Path, **more: Any) -> AppContext:
    """Service of a folder, which gets an empty store if it has none."""
    settings = {
        "database": f"sqlite:///{folder}/service.db",
        "tracking_uri": f"sqlite:///{folder}/mlflow.db",
        "output_dir": str(folder / "outputs"),
    }
    config = Service(**{**settings, **more})
    make_store(folder / "mlflow.db")
    make_service_database(config.database)
    service = AppContext(config)
    service.planner = PlannerHere(1, config.access.plan_within_s)  # one at a time: plans are composed in its threads
    return service


def close(service: AppContext) -> None:
    """Close a service that was not started."""
    service.runner.close()
    service.database.dispose()


class WebServer:
    """Answers until it is stopped, and again on the same port."""

    def __init__(self, service: AppContext) -> None:
        self.service = service
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        config = uvicorn.Config(make_app(self.service), port=self.port, log_config=None, timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        wait_until(self._answers, 30)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _answers(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def answering(folder: Path, **more: Any) -> Iterator[WebServer]:
    """A service of a folder that answers while the block lasts. Sweeps are recorded in its store, as by ``serve``."""
    server = WebServer(new_service(folder, **more))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", server.service.config.tracking_uri)
        try:
            yield server
        finally:
            server.stop()
            close(server.service)


def served(uri: str) -> AbstractContextManager[WebServer]:
    """A service whose database and sweeps are where the command line looks for them in the working folder."""
    return answering(Path.cwd(), database="sqlite:///outputs/service.db", tracking_uri=uri, output_dir="outputs")


@contextmanager
def listening(application: Any, **options: Any) -> Iterator[int]:
    """Any application behind uvicorn, with options of that; yields its port."""
    server = uvicorn.Server(uvicorn.Config(application, port=0, log_level="error", lifespan="off", **options))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started, 30)
    yield int(server.servers[0].sockets[0].getsockname()[1])
    server.should_exit = True
    thread.join(30)


@contextmanager
def mlflow_listening(folder: Path) -> Iterator[str]:
    """MLflow's application as ``mlflow server`` has it, with a store in a folder; yields its address. The program
    itself, ``recording.Server``, imports MLflow in two more processes, for many seconds."""
    with warnings.catch_warnings(action="ignore"):  # its own
        from mlflow.server import constants, handlers
        from mlflow.server.fastapi_app import app

    make_store(folder / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(constants.SERVE_ARTIFACTS_ENV_VAR, "true")
        patch.setenv(constants.ARTIFACTS_DESTINATION_ENV_VAR, str(folder / "artifacts"))
        store = f"sqlite:///{folder}/mlflow.db"
        # Set here, as it would also make them the stores of this process.
        opened = handlers._tracking_store_registry.get_store(store, "mlflow-artifacts:/")
        patch.setattr(handlers, "_tracking_store", opened)
        patch.setattr(handlers, "_model_registry_store", handlers._model_registry_store_registry.get_store(store))
        patch.setattr(handlers, "_artifact_repo", None)
        with listening(app, timeout_keep_alive=60) as port:
            yield f"http://127.0.0.1:{port}"
