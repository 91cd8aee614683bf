"""Messages about trials that wait for nodes, on a cluster whose autoscaler adds them."""

from __future__ import annotations

import time

from sweeps.compat.ray_core import groups_without_nodes
from sweeps.driver.sweep_state import SweepState
from sweeps.runtime.autoscaler import describe_resources
from sweeps.runtime.cluster import alive_nodes
from sweeps.texts.wording import counted

EVERY_S = 5.0
"""Seconds between two checks of the cluster."""
PATIENCE_S = 10.0
"""Seconds that workers may take to start on an existing node before their trial may count as waiting."""


class WaitingForNodes:
    """Reports which trials wait for nodes, and when nodes have joined."""

    def __init__(self, state: SweepState) -> None:
        self._state = state
        self._looked = 0.0
        self._waiting: set[str] = set()
        self._nodes = 0

    def look(self) -> None:
        """Announce which trials now wait for nodes."""
        if time.monotonic() - self._looked < EVERY_S:
            return
        self._looked = time.monotonic()
        before, self._waiting = self._waiting, self._waiting_trials()
        if not before and not self._waiting:
            return
        nodes = alive_nodes()
        if before and len(nodes) > self._nodes:
            self._state.announce(f"the cluster has grown to {counted(len(nodes), 'node')}: {describe_resources(nodes)}")
        self._nodes = len(nodes)
        if self._waiting - before:
            trials, wait = ("trial", "waits") if len(self._waiting) == 1 else ("trials", "wait")
            self._state.announce(
                f"{trials} {', '.join(sorted(self._waiting))} {wait} until the cluster's autoscaler has added nodes: "
                f"each needs {self._state.awaits}; the cluster has {describe_resources(nodes)}"
            )

    def _waiting_trials(self) -> set[str]:
        """Return the trials whose workers have no place yet: the most recently started ones, one for each unplaced
        worker group."""
        now = time.time()
        starting = [trial for trial in self._state.all_trials if trial.is_starting and trial.assigned]
        late = [trial for trial in starting if now - (trial.assigned or now) > PATIENCE_S]
        if not late:
            return set()
        late.sort(key=lambda trial: trial.assigned or now)
        return {trial.trial for trial in late[max(0, len(late) - groups_without_nodes()) :]}
