"""An MLflow that takes connections and never answers: what needs it is answered 503 within seconds, and everything else
as always. ``test_failing_mlflow.py`` has the same with the whole service and a real server."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from hanging_proxy import HangingProxy
from recording import free_port
from web_server import WebServer, answering

from sweeps.errors import TrackingUnreachable
from sweeps.service.auth import middleware
from sweeps.tracking.client import connect, reaching_within

# uvicorn leaves the connections that end as it stops to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")

ANSWERED_WITHIN_S = 10.0
"""It was 36 s where each call waited for its own timeout. The whole service shows 5 s; here the clients and the tests
beside them take the processor, too."""
AT_ONCE = 60
"""More than the threads that answer requests."""
NEEDING_MLFLOW = ("/api/v1/sweeps", "/api/v1/sweeps/mine", "/api/v1/sweeps/other/best", "/")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    monkeypatch.setattr(middleware, "MLFLOW_S", 1.0)  # the whole service waits as users' does
    store = HangingProxy(free_port())
    store.hangs = True
    uri = f"http://127.0.0.1:{store.port}"
    with pytest.raises(TrackingUnreachable), reaching_within(0.1):
        connect(uri)  # imports MLflow, which takes seconds; a service does so when it starts
    with answering(tmp_path, tracking_uri=uri) as server:
        yield server
    store.close()
    del server
    gc.collect()  # in this test, and not in one after it


def test_sixty_requests_to_an_mlflow_that_never_answers_get_503_within_seconds_and_delay_nothing_else(
    server: WebServer,
) -> None:
    def ask(path: str) -> tuple[str, int, str | None, float]:
        began = time.monotonic()
        answer = requests.get(f"{server.url}{path}", timeout=60)
        return path, answer.status_code, answer.headers.get("Retry-After"), time.monotonic() - began

    assert ask("/api/v1/jobs")[1] == 200
    paths = [*NEEDING_MLFLOW, "/api/v1/jobs"] * (AT_ONCE // 5)
    with ThreadPoolExecutor(AT_ONCE) as clients:
        asked = [clients.submit(ask, path) for path in paths]
        health = []
        while not all(each.done() for each in asked):
            health += [ask(f"/api/v1/{path}")[3] for path in ("health", "ready")]
            time.sleep(0.1)
    assert statistics.median(health) < 0.5
    found = [each.result() for each in asked]
    assert {(path, status) for path, status, _, _ in found} == {
        *((path, 503) for path in NEEDING_MLFLOW),
        ("/api/v1/jobs", 200),
    }
    assert all(after is not None for _, status, after, _ in found if status == 503)
    assert max(seconds for *_, seconds in found) < ANSWERED_WITHIN_S, found
