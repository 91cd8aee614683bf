"""A service's web application over a real connection, in this process, which starts none of the sweeps that wait."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from recording import free_port
from service_databases import make_service_database
from waiting import wait_until

from sweeps.config.service import Service
from sweeps.service.api.app import make_app
from sweeps.service.app_context import AppContext


def new_service(folder: Path, **more: Any) -> AppContext:
    """Service of a folder with a store."""
    settings = {
        "database": f"sqlite:///{folder}/service.db",
        "tracking_uri": f"sqlite:///{folder}/mlflow.db",
        "output_dir": str(folder / "outputs"),
    }
    config = Service(**{**settings, **more})
    make_service_database(config.database)
    return AppContext(config)


def close(service: AppContext) -> None:
    """Close a service that was not started."""
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
def served(uri: str) -> Iterator[WebServer]:
    """A service with its database and its sweeps where the command line looks for them in this folder."""
    here = {"database": "sqlite:///outputs/service.db", "tracking_uri": uri, "output_dir": "outputs"}
    server = WebServer(new_service(Path.cwd(), **here))
    yield server
    server.stop()
    server.service.runner.close()
    close(server.service)


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
