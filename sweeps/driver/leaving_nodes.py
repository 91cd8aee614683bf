"""Nodes that will leave the cluster, such as preempted nodes whose end the cloud announces."""

from __future__ import annotations

import time

from sweeps.compat.ray_core import draining_nodes


class LeavingNodes:
    """Reports each node once when its departure is announced."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def announced(self) -> dict[str, str]:
        """Return the announcements since the last call by node id, each such as ``leaves the cluster in 30 s``."""
        leaving = {node: ends for node, ends in draining_nodes().items() if node not in self._known}
        self._known |= leaving.keys()
        return {node: _text(ends) for node, ends in leaving.items()}


def _text(ends: float | None) -> str:
    return "leaves the cluster" if ends is None else f"leaves the cluster in {max(0.0, ends - time.time()):.0f} s"
