"""The processes of a cluster on this machine: Ray's server and node, which this process has started."""

from __future__ import annotations

import contextlib

import psutil

NAMES = ("gcs_server", "raylet")
"""Processes without which there is no cluster."""


class OwnCluster:
    """Ray's processes that this one has started."""

    def __init__(self) -> None:
        children = psutil.Process().children()
        self._processes = {each.name(): each for each in children if each.name() in NAMES}

    @property
    def is_empty(self) -> bool:
        """Whether there are none: this process has joined a running cluster."""
        return not self._processes

    def ended(self) -> str | None:
        """Name of a process that has ended; None if all run."""
        return next((name for name, each in self._processes.items() if not _runs(each)), None)

    def kill(self) -> None:
        """Kill what is left of it, if one of its processes has ended: Ray would wait for answers that never come."""
        if self.ended() is None:
            return
        left = [each for process in self._processes.values() for each in _family(process)]
        for each in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(self._processes.values(), timeout=3)


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _family(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return [*process.children(recursive=True), process]
    return []
