"""Reasons for which a worker was lost."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from sweeps.runtime import lost_worker
from sweeps.runtime.lost_worker import NODE_DIED, PROCESS_DIED, lost_workers


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """Ray's table of a node that accepts connections, one that does not, and one that Ray knows to be dead."""
    with socket.create_server(("127.0.0.1", 0)) as alive:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            unused = closed.getsockname()[1]
        port = alive.getsockname()[1]
        table = [
            {"NodeID": name, "Alive": name != "left", "NodeManagerAddress": "127.0.0.1", "NodeManagerPort": number}
            for name, number in (("alive", port), ("dead", unused), ("left", port))
        ]
        monkeypatch.setattr(ray, "nodes", lambda: table)
        yield table


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize(
    ("node", "reason"), [("alive", PROCESS_DIED), ("dead", NODE_DIED), ("left", NODE_DIED), ("unknown", NODE_DIED)]
)
def test_a_worker_is_lost_with_its_node_before_ray_has_noticed_that(node: str, reason: str) -> None:
    failed = RuntimeError("workers failed")
    failed.worker_failures = {  # type: ignore[attr-defined]
        1: SimpleNamespace(health_check_failure=ray.exceptions.ActorDiedError())
    }
    (error,) = lost_workers(failed, ("a", "b/0"), ("alive", node))
    assert error.message == f"worker 1 on b was lost: {reason}"


def test_a_worker_that_ray_has_killed_because_memory_ran_out_is_lost() -> None:
    failed = RuntimeError("workers failed")
    death = ray.exceptions.OutOfMemoryError("1 worker(s) were killed due to the node running low on memory.")
    failed.worker_failures = {0: SimpleNamespace(health_check_failure=death)}  # type: ignore[attr-defined]
    (error,) = lost_workers(failed, ("a",), ("1",))
    assert error.kind == "lost"
    assert error.message == "worker 0 on a was lost: it was killed because its node was running low on memory"


def test_a_node_is_asked_once_however_many_of_its_workers_were_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(lost_worker, "is_reachable", lambda node: bool(asked.append(node)))
    death = SimpleNamespace(health_check_failure=ray.exceptions.ActorDiedError())
    failed = RuntimeError("workers failed")
    failed.worker_failures = dict.fromkeys(range(4), death)  # type: ignore[attr-defined]
    errors = lost_workers(failed, ("a", "a", "b", "b"), ("1", "1", "2", "2"))
    assert [error.message.endswith(NODE_DIED) for error in errors] == [True] * 4
    assert asked == ["1", "2"]
