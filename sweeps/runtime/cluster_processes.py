"""Processes of a Ray cluster that this process has started on this machine: Ray's server and node."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path

import psutil

from sweeps.runtime.process_limits import few_processes

NAMES = ("gcs_server", "raylet")
"""Processes that every Ray cluster has."""
TITLES = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""Process titles of the agents of a Ray node."""
SCRIPTS = ("/dashboard/agent.py", "/runtime_env/agent/main.py")
"""Scripts of the agents of a Ray node."""
SOCKETS = ("--raylet_socket_name", "--store_socket_name")
"""Options of a Ray node with the files of its sockets."""


class OwnCluster:
    """Ray's processes that this process has started."""

    def __init__(self, others: Collection[psutil.Process] = (), forks: psutil.Process | None = None) -> None:
        """
        Args:
            others: Processes of clusters that this process started earlier, which are not touched.
            forks: Process that forks the cluster's workers, if there is one.
        """
        self._forks = [] if forks is None else [forks]
        self._processes = {each.name(): each for each in cluster_processes() if each not in others}
        node = self._processes.get("raylet")
        self._agents = [] if node is None else [each for each in _descendants(node) if _is_agent(each)]
        """Agents of Ray's node: the processes that the node starts first. They outlive the node if Ray's server does
        not answer them."""
        self._sockets = [] if node is None else _sockets(node)

    @property
    def is_empty(self) -> bool:
        """Whether this process joined a running cluster instead of starting one."""
        return not self._processes

    def lost(self) -> str | None:
        """Return the reason why the cluster is unusable; None if it is usable. A process has ended, or the file of a
        socket was removed, through which new workers find their node."""
        if (ended := next((name for name, each in self._processes.items() if not _runs(each)), None)) is not None:
            return f"its process {ended} has ended{few_processes()}"
        removed = next((each for each in self._sockets if not each.exists()), None)
        return None if removed is None else f"{removed} was removed, without which no worker can start"

    def kill(self) -> None:
        for process in self._processes.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()  # so that it starts no further ones
        parents = [*self._processes.values(), *self._forks]
        _kill([*(each for process in parents for each in _descendants(process)), *self._agents])
        _kill([*self._processes.values()])
        psutil.wait_procs(self._processes.values(), timeout=3)

    def kill_agents(self) -> None:
        """Kill the agents that remain after Ray has ended."""
        _kill(self._agents)


def cluster_processes() -> list[psutil.Process]:
    """Return the Ray servers and nodes that this process has started."""
    return [each for each in psutil.Process().children() if _runs(each) and each.name() in NAMES]


def _sockets(node: psutil.Process) -> list[Path]:
    """Return the files of a node's sockets, in Ray's folder for temporary files."""
    with contextlib.suppress(psutil.NoSuchProcess):
        options = (argument.partition("=") for argument in node.cmdline())
        return [file for name, _, value in options if name in SOCKETS and (file := Path(value)).exists()]
    return []


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def _is_agent(process: psutil.Process) -> bool:
    """Whether a process is an agent of Ray's node: by its title, or by its script before it has a title."""
    with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return any(word.rstrip() in TITLES or word.endswith(SCRIPTS) for word in process.cmdline())
    return False


def _kill(processes: list[psutil.Process]) -> None:
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
