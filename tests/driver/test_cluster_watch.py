"""The driver notices within seconds that Ray is gone."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from waiting import wait_until

from sweeps.driver import cluster_watch
from sweeps.driver.cluster_watch import ClusterWatch
from sweeps.errors import ClusterLost
from sweeps.runtime.own_cluster import NAMES, OwnCluster


@pytest.fixture
def started(tmp_path: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Processes of this one with the names of Ray's."""
    sleep = shutil.which("sleep")
    assert sleep is not None
    processes = {name: subprocess.Popen([shutil.copy(sleep, tmp_path / name), "600"]) for name in NAMES}
    wait_until(lambda: not OwnCluster().is_empty, 10)
    yield processes
    for each in processes.values():
        each.kill()
        each.wait()


class Leaves:
    """Signals and state of a sweep, which only remember."""

    def __init__(self, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address=address))
        monkeypatch.setattr(cluster_watch, "LOOK_EVERY_S", 0.01)
        self.errors: list[ClusterLost] = []
        state: Any = SimpleNamespace(sweep="s")
        signals: Any = SimpleNamespace(leave=self.errors.append)
        self.watch = ClusterWatch(state, signals)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A server that takes connections, as that of Ray."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def address_of(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("name", NAMES)
def test_the_driver_leaves_when_a_process_of_ray_that_it_has_started_ends(
    monkeypatch: pytest.MonkeyPatch, server: socket.socket, started: dict[str, subprocess.Popen[bytes]], name: str
) -> None:
    leaves = Leaves(address_of(server), monkeypatch)
    with leaves.watch:
        assert not leaves.errors
        started[name].kill()
        wait_until(lambda: leaves.errors, 10)
    text = str(leaves.errors[0])
    assert text.startswith(f"Ray is gone: its process {name} has ended; what was reported is kept")
    assert "python -m sweeps resume s" in text


@pytest.mark.usefixtures("started")
def test_the_driver_leaves_when_ray_on_this_machine_takes_no_connections_any_more(
    monkeypatch: pytest.MonkeyPatch, server: socket.socket
) -> None:
    leaves = Leaves(address := address_of(server), monkeypatch)
    with leaves.watch:
        server.close()
        wait_until(lambda: leaves.errors, 10)
    assert f"Ray is gone: {address} refuses connections" in str(leaves.errors[0])


def test_the_driver_leaves_a_cluster_whose_head_does_not_answer_for_long(
    monkeypatch: pytest.MonkeyPatch, server: socket.socket
) -> None:
    monkeypatch.setattr(cluster_watch, "GONE_AFTER_S", 0.5)
    leaves = Leaves(address := address_of(server), monkeypatch)
    with leaves.watch:
        server.close()
        wait_until(lambda: leaves.errors, 10)
    assert f"Ray is gone: {address} has not answered for" in str(leaves.errors[0])


def test_what_is_left_of_an_own_cluster_is_killed_once_a_part_of_it_has_ended(
    started: dict[str, subprocess.Popen[bytes]],
) -> None:
    own = OwnCluster()
    own.kill()
    assert all(each.poll() is None for each in started.values())
    started["raylet"].kill()
    wait_until(lambda: own.ended() == "raylet", 10)
    own.kill()
    started["gcs_server"].wait(5)
