"""Which nodes are found among groups that were measured."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sweeps.doctor.slow_nodes import Group, Times, in_pairs, slow_among, suspects

NODES = [f"node{number}" for number in range(8)]


class Cluster:
    """Nodes of which some fail or are slow in every group that they are in."""

    def __init__(self, broken: Sequence[str] = (), slow: Sequence[str] = ()) -> None:
        self.broken, self.slow = set(broken), set(slow)
        self.rounds: list[Sequence[Group]] = []

    def measure(self, groups: Sequence[Group]) -> Times:
        self.rounds.append(groups)
        assert len({node for group in groups for node in group}) == sum(map(len, groups)), "a node in two groups"
        return {group: None if self.broken & {*group} else 0.5 if self.slow & {*group} else 0.1 for group in groups}


@pytest.mark.parametrize("number", [2, 3, 5, 8])
def test_every_node_is_in_one_group_of_two_or_three(number: int) -> None:
    groups = in_pairs(NODES[:number])
    assert [node for group in groups for node in group] == NODES[:number]
    assert {len(group) for group in groups} <= {2, 3}


def test_a_healthy_cluster_is_measured_once() -> None:
    cluster = Cluster()
    assert suspects(NODES, cluster.measure) == (set(), set())
    assert len(cluster.rounds) == 1


@pytest.mark.parametrize("broken", [["node0"], ["node7"], ["node1", "node2"]])
@pytest.mark.parametrize("number", [7, 8])
def test_a_broken_node_is_named_and_its_partner_is_not(number: int, broken: list[str]) -> None:
    broken = [node for node in broken if node in NODES[:number]] or ["node6"]
    assert suspects(NODES[:number], Cluster(broken).measure) == (set(broken), set())


def test_slow_and_broken_nodes_are_told_apart() -> None:
    assert suspects(NODES, Cluster(["node3"], ["node4"]).measure) == ({"node3"}, {"node4"})


def test_more_suspects_than_trusted_nodes_are_measured_in_several_rounds() -> None:
    cluster = Cluster(["node0", "node2", "node4"])
    assert suspects(NODES, cluster.measure) == ({"node0", "node2", "node4"}, set())
    assert len(cluster.rounds) == 4


def test_two_nodes_that_fail_together_are_both_named() -> None:
    assert suspects(NODES[:2], Cluster(["node1"]).measure) == ({"node0", "node1"}, set())


def test_one_of_two_can_be_slow_and_one_alone_cannot() -> None:
    assert slow_among({"a": 0.1, "b": 0.5}) == {"b": pytest.approx(5.0)}
    assert slow_among({"a": 0.5}) == {}
    assert slow_among({"a": 0.10, "b": 0.11, "c": 0.19}) == {}
