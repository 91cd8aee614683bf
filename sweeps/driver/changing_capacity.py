"""Limit on concurrent trials, updated as nodes join the cluster, leave it, or are excluded after a failure."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from sweeps.compat.ray_core import draining_nodes
from sweeps.constants import TAG_LANES
from sweeps.doctor.doctor import unfit_nodes
from sweeps.driver.session import Session
from sweeps.errors import DoesNotFit
from sweeps.plan.plan import Plan
from sweeps.runtime.autoscaler import nodes_to_come
from sweeps.runtime.cluster import alive_nodes
from sweeps.runtime.node_resources import node_id, without_nodes
from sweeps.runtime.trials_at_once import Fit, fit
from sweeps.search.schedulers.places import Places
from sweeps.texts.wording import counted

LOOK_EVERY_S = 2.0
"""Seconds between two checks of the cluster's nodes."""


def current_fit(plan: Plan, before: Fit, excluded: Collection[str], lanes_found: int = 1) -> Fit:
    """Compute how many trials run at a time on the current nodes.

    Args:
        plan: The sweep.
        before: Fit at the start of the session, which decides whether trials use GPUs, and how many CPUs beside one.
        excluded: Ids of nodes to leave out.
        lanes_found: Trials that one worker group trains at a time; see ``fit``.

    Raises:
        DoesNotFit: Not even one trial fits.
    """
    scalings = [replace(each, use_gpu=before.use_gpu) if not each.pools else each for each in plan.scalings]
    nodes = without_nodes(alive_nodes(), excluded)
    nodes += nodes_to_come(plan.config.cluster, nodes)
    now = fit(plan.config, scalings, nodes, all_pools=False, lanes_found=lanes_found, before=before)
    return now.leaving_out(excluded)


class Capacity:
    """Follows the cluster's nodes while the sweep searches, and sets the limit on concurrent trials.

    Trials that run on other nodes continue undisturbed; a node that joins is used as soon as it is seen.
    """

    def __init__(self, plan: Plan, session: Session, places: Places):
        self._plan, self._state, self._places, self._broker = plan, session.state, places, session.broker
        self._known = _ids()
        self._leaving: dict[str, str] = {}
        """Announcement of each node that has been said to leave, by its id."""
        self._recorder = session.recorder
        self._avoided = self._state.fit.leaving_out(self._state.excluded_nodes).avoided()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="capacity", daemon=True)

    def __enter__(self) -> Capacity:
        """Start to follow the nodes, which may have changed since the session's start or the previous search."""
        if self._plan.config.cluster.check_nodes:
            self._broker.check_nodes()
        self._refit_and_tell(self._plan.name, only_changes=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        while self._thread.is_alive() and self._state.shutdown.has_cluster:  # without it, Ray may never answer
            self._thread.join(0.2)

    def refit(self, plan: Plan | None = None) -> None:
        """Recompute the limit on concurrent trials from the current nodes.

        Args:
            plan: The extended plan; default: the plan has not changed.

        Raises:
            DoesNotFit: Not even one trial could be placed; the limit is unchanged.
        """
        self._plan = plan or self._plan
        state = self._state
        now = current_fit(self._plan, state.fit, state.excluded_nodes, state.lanes_found)
        with state.lock:
            state.concurrent = self._places.max_concurrent = now.concurrent
            state.places = now.places
            self._broker.set_groups(now.groups)
            if state.pools is not None:
                state.pools.refit(now.pools)
        self._avoided = now.avoided()
        self._broker.avoid(self._avoided)

    @property
    def _at_once(self) -> str:
        at_once, pools = f"{counted(self._state.concurrent, 'trial')} at once", self._state.pools
        if pools is None or not pools.without_nodes:
            return at_once
        gone = " and ".join(f"scaling.pools.{name}" for name in pools.without_nodes)
        return f"{at_once}; {gone} has no node now, and trials that fit nowhere else wait for one"

    def _run(self) -> None:
        is_blind = False
        while not self._done.wait(LOOK_EVERY_S):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - Ray raises several; its next answer may be a good one
                if not is_blind:
                    self._state.announce(f"the cluster's nodes cannot be checked ({error}); still {self._at_once}")
                is_blind = True
            else:
                is_blind = False

    def _look(self) -> None:
        while not self._state.suspected.empty():
            self._check(self._state.suspected.get())
        # Ray aborts this process if the server of its own cluster ends during the call, as by a signal to both.
        draining = {} if self._plan.config.cluster.address == "local" else draining_nodes()
        if leaving := {node: ends for node, ends in draining.items() if node not in self._leaving}:
            self._leaving |= {node: _announcement(ends) for node, ends in leaving.items()}
            self._leave([*leaving])
        if self._state.fit.finds_lanes and not self._state.has_found_lanes:
            self._find_lanes()
        nodes = _ids()
        if nodes != self._known:
            self._changed(nodes - self._known, self._known - nodes)
            self._known = nodes

    def _find_lanes(self) -> None:
        """Adopt the number of trials per worker group that the workers have measured as the fastest."""
        state, (number, reason) = self._state, self._broker.lanes()
        if number <= state.lanes_found and reason is None:  # fewer: a restarted broker has not been told yet
            return
        self._broker.set_lanes(number, reason)
        with state.lock:
            state.lanes_found, state.has_found_lanes = number, reason is not None
        with contextlib.suppress(DoesNotFit):  # nodes have just left, and ``_changed`` announces that
            self.refit()
        if reason is not None:
            found = f"{counted(number, 'trial')} a worker group: {reason}"
            state.announce(f"scaling.trials_per_group=auto: {found}; {self._at_once}")
            self._recorder.attach({}, {TAG_LANES: found})

    def _leave(self, nodes: Sequence[str]) -> None:
        """Move trials away from nodes that are about to leave the cluster, given by their ids."""
        state = self._state
        state.excluded_nodes = (*state.excluded_nodes, *nodes)
        if not self._refit_and_tell(f"{counted(len(nodes), 'node')} will leave the cluster"):
            self._avoided = state.fit.leaving_out(state.excluded_nodes).avoided()  # the trials wait for others
            self._broker.avoid(self._avoided)
        self._broker.nodes_leave({**self._leaving})

    def _changed(self, joined: Collection[str], left: Collection[str]) -> None:
        numbers = ((len(joined), "joined"), (len(left), "left"))
        self._refit_and_tell(" and ".join(f"{counted(number, 'node')} {verb}" for number, verb in numbers if number))

    def _refit_and_tell(self, what: str, *, only_changes: bool = False) -> bool:
        """Recompute the limit after a change of the cluster and announce it; return whether any trial can be placed.

        Args:
            what: The change, in words.
            only_changes: Whether to announce the limit only if it has changed.
        """
        before = self._state.concurrent
        try:
            self.refit()
        except DoesNotFit as error:
            self._state.announce(f"{what}: no trial can be placed now ({error})")
            return False
        if not only_changes or self._state.concurrent != before:
            self._state.announce(f"{what}: {self._at_once}")
        return True

    def _check(self, nodes: Sequence[str]) -> None:
        """Check the nodes of a failed trial and leave out bad ones; the trial's next attempt waits for the result."""
        state, plan = self._state, self._plan
        folder = str(plan.folder.parent) if plan.uri is None else plan.config.output_dir
        try:
            asked = [node for node in nodes if node in _ids() and node not in state.excluded_nodes]
            unfit = unfit_nodes(plan.config, folder, asked) if asked else {}
            found = "; ".join(f"{finding.where}: {finding.found}" for finding in unfit.values())
            before, state.excluded_nodes = state.excluded_nodes, (*state.excluded_nodes, *unfit)
            try:
                self.refit()
            except DoesNotFit:
                state.excluded_nodes = before
                if unfit:
                    state.announce(f"{found}; it stays in use, since no trial fits on the other nodes")
            else:
                if unfit:
                    state.announce(f"{plan.name}: leaves out {found}; {self._at_once}")
        except Exception as error:  # noqa: BLE001 - a check that fails must not end the sweep
            state.announce(f"the nodes of a failed trial could not be checked: {error}")
        finally:
            self._broker.avoid(self._avoided, nodes)


def _announcement(ends: float | None) -> str:
    """Describe when a node leaves the cluster, given the Unix time of its end if that is known."""
    return "leaves the cluster" if ends is None else f"leaves the cluster in {max(0.0, ends - time.time()):.0f} s"


def _ids() -> set[str]:
    """Return the ids of the cluster's nodes."""
    return {node_id(node) for node in alive_nodes()}
