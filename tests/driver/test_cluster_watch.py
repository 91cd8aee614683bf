"""The driver notices within seconds that Ray is gone."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import ray
from waiting import wait_until

from sweeps.driver import cluster_watch
from sweeps.driver.cluster_watch import ClusterGuard, ClusterWatch
from sweeps.errors import ClusterLost
from sweeps.runtime import process_limits
from sweeps.runtime.cluster_processes import NAMES, OwnCluster


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


def test_the_driver_leaves_when_somebody_removes_the_files_of_ray_without_which_no_worker_can_start(
    monkeypatch: pytest.MonkeyPatch, server: socket.socket, tmp_path: Path
) -> None:
    (python := tmp_path / "raylet").symlink_to(sys.executable)
    (file := tmp_path / "socket").touch()
    with subprocess.Popen([python, "-c", "input()", f"--raylet_socket_name={file}"], stdin=subprocess.PIPE) as node:
        wait_until(lambda: not OwnCluster().is_empty, 10)
        leaves = Leaves(address_of(server), monkeypatch)
        with leaves.watch:
            assert not leaves.errors
            file.unlink()
            wait_until(lambda: leaves.errors, 10)
        node.kill()
    assert f"Ray is gone: {file} was removed, without which no worker can start; what was" in str(leaves.errors[0])


def test_the_main_thread_waits_to_be_interrupted_instead_of_asking_a_ray_that_has_just_ended(
    monkeypatch: pytest.MonkeyPatch, started: dict[str, subprocess.Popen[bytes]]
) -> None:
    shutdown: Any = SimpleNamespace(has_cluster=True, status=None)
    guard = ClusterGuard(shutdown)
    guard.wait_if_gone()
    assert not guard.releases(), "this process has left the cluster"
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    assert guard.releases()
    shutdown.status = "interrupted"
    assert not guard.releases(), "Ray's processes may have got the same signal"
    started["gcs_server"].kill()
    started["gcs_server"].wait()
    found = threading.Timer(0.3, setattr, (shutdown, "has_cluster", False))
    found.start()
    guard.wait_if_gone()
    assert not shutdown.has_cluster, "it has not waited"
    found.join()


@pytest.mark.parametrize(("host", "is_own"), [("127.0.0.1", True), ("127.0.0.1", False), ("[127.0.0.1]", True)])
def test_the_driver_leaves_when_its_own_ray_refuses_connections_or_a_cluster_does_not_answer_for_long(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, server: socket.socket, host: str, is_own: bool
) -> None:
    if is_own:
        request.getfixturevalue("started")
    else:
        monkeypatch.setattr(cluster_watch, "GONE_AFTER_S", 0.5)
    address = f"{host}:{server.getsockname()[1]}"  # in brackets, as Ray writes those of IPv6
    leaves = Leaves(address, monkeypatch)
    with leaves.watch:
        server.close()
        wait_until(lambda: leaves.errors, 10)
    gone = "refuses connections" if is_own else "has not answered for"
    assert f"Ray is gone: {address} {gone}" in str(leaves.errors[0])


NODE = """
import subprocess, sys
agent = subprocess.Popen([sys.executable, sys.argv[1], "600"])
agent.wait()
"""


@pytest.mark.parametrize("is_killed", [True, False])
def test_the_agents_that_outlive_their_node_are_killed(
    tmp_path: Path, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "dashboard" / "agent.py"
    script.parent.mkdir()
    # It tells its own id: just begun, a process may have no command line yet.
    script.write_text("import os, time; print(os.getpid(), flush=True); time.sleep(600)", encoding="utf-8")
    python = tmp_path / "raylet"
    python.symlink_to(sys.executable)
    with subprocess.Popen([python, "-c", NODE, script], stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        agent = psutil.Process(int(node.stdout.readline()))
        own = OwnCluster()
        assert own.lost() is None
        if is_killed:
            node.kill()
            node.wait()
            assert agent.is_running()
            own.kill_agents()
        else:
            own.kill()
    assert own.lost() == "its process raylet has ended"
    monkeypatch.setattr(process_limits.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(process_limits.resource, "getrlimit", lambda _: (230, 4096))
    assert own.lost() == (
        "its process raylet has ended (ulimit -u: a user may have 230 processes and threads; raise it, as in "
        "`ulimit -u 4096`)"
    )
    psutil.wait_procs([agent], timeout=10)
    assert not agent.is_running()
