"""Nodes that compute slowly or lack room, as they are measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import ray

from sweeps.doctor.cluster_findings import _disks, check_speed
from sweeps.doctor.finding import Finding
from sweeps.doctor.node_state import Look, NodeState
from sweeps.doctor.probes import Probes, cluster_nodes


class Measured:
    """Processes on three nodes, with the seconds that the matrix products of each take."""

    busy = ("d",)

    def __init__(self, **seconds: list[float]):
        self.seconds, self.asked = seconds, [*seconds]
        self.failures: dict[str, str] = {}
        self.measured: list[list[str]] = []

    def matrix_products(self, only: Any = None) -> dict[str, float]:
        names = [*self.asked] if only is None else [*only]
        self.measured.append(names)
        self.failures |= {name: "did not answer within 30 s" for name in names if not self.seconds[name]}
        return {name: self.seconds[name].pop(0) for name in names if self.seconds[name]}

    def measurable(self) -> list[str]:
        return []


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ([0.12], ("ok", "", "a matrix product takes 100 ms, on the slowest node 120 ms")),
        ([0.4], ("warning", "b", "a matrix product takes 300 ms, 3.0 times the usual")),
        ([], ("failed", "b", "a matrix product did not answer within 30 s")),
    ],
)
def test_a_node_is_slow_only_if_it_is_so_twice(second: list[float], expected: tuple[str, str, str]) -> None:
    probes: Any = Measured(a=[0.1], b=[0.3, *second], c=[0.1], d=[0.1])
    findings = [each for each in check_speed(probes) if each.check == "speed"]
    assert probes.measured == [["a", "b", "c", "d"], ["b"]]
    assert isinstance(findings[0], Finding)
    assert (findings[0].verdict, findings[0].where, findings[0].found) == expected


@pytest.mark.parametrize(
    ("purpose", "free_gib", "verdict"),
    [
        ("output_dir", 2000, "ok"),  # of a large file system that is shared, and nearly always full
        ("temporary files", 2000, "warning"),  # Ray writes no more objects there
        ("output_dir", 9, "warning"),
        ("temporary files", 0.5, "failed"),
    ],
)
def test_a_disk_is_short_by_what_is_free_and_that_of_ray_also_by_its_share(
    purpose: str, free_gib: float, verdict: str
) -> None:
    disks = {purpose: (int(free_gib * 2**30), 100_000 * 2**30)}
    state = NodeState("", {}, "", [], "", disks, sees_marker=True, write_error="", server_error="")
    assert [each.verdict for each in _disks({"a": state})] == [verdict]


@pytest.mark.slow
def test_a_process_that_an_all_reduce_has_ended_is_started_again() -> None:
    """As NCCL ends it, if a node's network is broken: the node is then paired with another one."""
    ray.init(address="local", num_cpus=2, include_dashboard=False)
    try:
        (node,) = cluster_nodes()
        probes = Probes([replace(node, name=name, cpus=1.0) for name in ("broken", "good")])
        ray.kill(probes._actors["broken"])
        assert probes.all_reduces([("broken", "good")])["broken", "good"] is not None
    finally:
        ray.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [0, 1])
def test_a_node_whose_cpus_others_use_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpus: int
) -> None:
    monkeypatch.setattr("sweeps.doctor.probes.FREE_WITHIN_S", 1.0)
    ray.init(address="local", num_cpus=1, num_gpus=gpus, include_dashboard=False)
    try:
        training: Any = ray.remote(num_cpus=1)(Event)
        others = training.remote()
        ray.get(others.is_set.remote())
        (node,) = cluster_nodes()
        probes = Probes([node])
        look = Look(packages=(), folder=str(tmp_path), marker="", folders={}, server=None)
        assert ([*probes.look(look)], probes.busy, probes.measurable()) == ([node.name], {node.name}, [])
    finally:
        ray.shutdown()
