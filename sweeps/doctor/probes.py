"""Processes of the doctor, one on each node of the connected cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sweeps.doctor.node_state import Look, NodeState, look
from sweeps.doctor.slow_nodes import Group, Times
from sweeps_train.devices.node_speed import MEETS_WITHIN_S, Meeting, all_reduce_s, free_port, matrix_product_s

STARTS_WITHIN_S = 60.0
"""Maximum seconds for a process to start on a node and read its state, mostly for importing torch."""
FREE_WITHIN_S = 20.0
"""Maximum seconds to wait until the devices of a node are free, and a process has started there."""
MEASURED_WITHIN_S = 30.0
"""Maximum seconds for matrix products."""
NO_CODE = ("ModuleNotFoundError: No module named 'sweeps", "No module named 'sweeps_train")


class _Probe:
    """Process on one node."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)


@dataclass(frozen=True)
class Node:
    id: str
    name: str
    """Host name and address, followed by the start of the node's id if several nodes share both."""
    address: str
    gpus: float
    cpus: float = 0.0


def cluster_nodes() -> list[Node]:
    """Return the nodes that are alive, the driver's first."""
    alive: list[dict[str, Any]] = [each for each in ray.nodes() if each["Alive"]]  # type: ignore[no-untyped-call]
    names = [f"{each['NodeManagerHostname']} ({each['NodeManagerAddress']})" for each in alive]
    own = ray.get_runtime_context().get_node_id()
    nodes = [
        Node(
            id=each["NodeID"],
            name=name if names.count(name) == 1 else f"{name} {each['NodeID'][:6]}",
            address=each["NodeManagerAddress"],
            gpus=each["Resources"].get("GPU", 0.0),
            cpus=each["Resources"].get("CPU", 0.0),
        )
        for each, name in zip(alive, names, strict=True)
    ]
    return sorted(nodes, key=lambda node: (node.id != own, node.name))


class Probes:
    """Processes on all nodes; ``failures`` has those that did not start or answer."""

    def __init__(self, nodes: Sequence[Node]):
        self.nodes = {node.name: node for node in nodes}
        self.busy: set[str] = set()
        """Nodes that are not measured because others use their GPUs, or the CPUs that the measurement needs; or because
        no process has started there in time."""
        self.failures: dict[str, str] = {}
        """Reason for each node whose process did not answer."""
        self._actors = {name: self._start(node, alone=True) for name, node in self.nodes.items()}

    def _start(self, node: Node, *, alone: bool) -> Any:
        """Start a node's process, either as soon as the node is free or immediately."""
        here = NodeAffinitySchedulingStrategy(node.id, soft=False)
        actor: Any = ray.remote(_Probe)
        # GPUs are slow where trials fill the CPUs that start their kernels; a few in use, as by a driver, do no harm.
        cpus, gpus = (min(node.gpus or node.cpus, node.cpus), node.gpus) if alone else (0.0, 0.0)
        return actor.options(num_cpus=cpus, num_gpus=gpus, max_restarts=0, scheduling_strategy=here).remote()

    def look(self, wanted: Look) -> dict[str, NodeState]:
        """Read the state of each node that answers."""
        waiting = {name: actor.call.remote(time.time) for name, actor in self._actors.items()}
        ready, _ = ray.wait([*waiting.values()], num_returns=len(waiting), timeout=FREE_WITHIN_S)
        for name in [name for name, answer in waiting.items() if answer not in ready]:
            self.busy.add(name)
            ray.kill(self._actors[name])
            self._actors[name] = self._start(self.nodes[name], alone=False)
        answers = {name: actor.call.remote(look, wanted) for name, actor in self._actors.items()}
        return dict(self._collect(answers, STARTS_WITHIN_S))

    def clock_offsets(self) -> dict[str, tuple[float, float]]:
        """Return the seconds that each node's clock is ahead of this one, with the uncertainty: half the round trip of
        the request."""
        offsets = {}
        for name in self._answering():
            began = time.time()
            for _, there in self._collect({name: self._actors[name].call.remote(time.time)}, STARTS_WITHIN_S):
                took = time.time() - began
                offsets[name] = (there - began - took / 2, took / 2)
        return offsets

    def matrix_products(self, only: Collection[str] | None = None) -> dict[str, float]:
        """Measure the seconds of a matrix product on each node's slowest device.

        Args:
            only: Names of the nodes to measure; default: all that answer.
        """
        measured = [name for name in self._answering() if only is None or name in only]
        answers = {name: self._actors[name].call.remote(matrix_product_s) for name in measured}
        return {name: max(seconds) for name, seconds in self._collect(answers, MEASURED_WITHIN_S)}

    def measurable(self) -> list[str]:
        """Return the nodes that answer and whose devices are free."""
        return [name for name in self._answering() if name not in self.busy]

    def all_reduces(self, groups: Sequence[Group]) -> Times:
        """Measure the seconds of an all-reduce within each group, in all groups at the same time."""
        asked: dict[Group, list[Any]] = {}
        for group in groups:
            port, *others = (self._free_port(name) for name in group)
            if port is None or None in others:
                continue
            address = self.nodes[group[0]].address
            asked[group] = [
                self._actors[name].call.remote(all_reduce_s, Meeting(address, port, rank, len(group)))
                for rank, name in enumerate(group)
            ]
        times: dict[Group, float | None] = dict.fromkeys(groups)
        for group, answers in asked.items():
            with suppress(RayError):
                times[group] = max(ray.get(answers, timeout=2 * MEETS_WITHIN_S))
        return times

    def close(self) -> None:
        for actor in self._actors.values():
            ray.kill(actor)

    def _answering(self) -> list[str]:
        return [name for name in self._actors if name not in self.failures]

    def _collect(self, answers: Mapping[str, Any], within_s: float) -> Iterator[tuple[str, Any]]:
        """Collect the answers that arrive in time; record other nodes in ``failures``."""
        if not answers:
            return
        ready, _ = ray.wait([*answers.values()], num_returns=len(answers), timeout=within_s)
        for name, answer in answers.items():
            try:
                if answer in ready:
                    yield name, ray.get(answer)
                else:
                    self.failures[name] = f"did not answer within {within_s:g} s"
            except RayError as error:
                self.failures[name] = _reason(error)

    def _free_port(self, name: str) -> int | None:
        """Return a free port of a node; None if its process does not answer even after a restart. NCCL may hang or end
        a process when an all-reduce fails."""
        for within_s in (MEETS_WITHIN_S, STARTS_WITHIN_S):
            try:
                port: int = ray.get(self._actors[name].call.remote(free_port), timeout=within_s)
            except RayError:
                ray.kill(self._actors[name])
                self._actors[name] = self._start(self.nodes[name], alone=True)
            else:
                return port
        return None


def _reason(error: RayError) -> str:
    text = str(error)
    if any(sign in text for sign in NO_CODE):
        return "has no ray-sweeps installed"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"failed: {lines[-1][:300]}" if lines else type(error).__name__
