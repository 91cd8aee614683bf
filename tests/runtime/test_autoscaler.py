"""Nodes that an autoscaler may add, from the config of a sweep and from the autoscaler's own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray

from sweeps.config.cluster import Cluster, NodeType
from sweeps.runtime import autoscaler
from sweeps.runtime.autoscaler import NODE_TYPE_LABEL, describe_nodes, nodes_to_come
from sweeps.runtime.node_resources import label

HEAD = {"CPU": 4.0}
GPU_NODE = {"CPU": 8.0, "GPU": 1.0, label(NODE_TYPE_LABEL, "gpu"): 1.0}
UP = {
    "max_workers": 3,
    "head_node_type": "head",
    "available_node_types": {
        "head": {"resources": {"CPU": 4}},
        "cpu": {"resources": {"CPU": 16}, "max_workers": 2},
        "gpu": {"resources": {"CPU": 8, "GPU": 1}, "labels": {"zone": "a"}, "node_config": {"key": "secret"}},
    },
}


def test_the_types_in_the_config_say_how_far_a_cluster_grows_less_what_it_has() -> None:
    kinds = {"gpu": NodeType(resources={"CPU": 8, "GPU": 1}, max_workers=3)}
    cluster = Cluster(address="auto", node_types=kinds)
    assert describe_nodes(nodes_to_come(cluster, [HEAD])) == "3 x gpu (8 CPU, 1 GPU)"
    assert len(nodes_to_come(cluster, [HEAD, GPU_NODE, GPU_NODE])) == 1
    unlabelled = {"CPU": 8.0, "GPU": 1.0}  # Ray's first autoscaler tells no node its type
    assert len(nodes_to_come(cluster, [{**unlabelled, autoscaler.HEAD: 1.0}, GPU_NODE, unlabelled])) == 1
    assert nodes_to_come(cluster, [HEAD, *[GPU_NODE] * 4]) == []  # those that are too many are about to go
    assert nodes_to_come(Cluster(node_types=kinds), [HEAD]) == []  # a cluster on this machine does not grow


def test_the_autoscalers_own_config_limits_each_type_and_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    config: dict[str, Any] = UP
    monkeypatch.setattr(autoscaler, "_config_on_head", lambda: config)
    coming = nodes_to_come(Cluster(address="auto"), [HEAD])
    assert describe_nodes(coming) == "3 x gpu (8 CPU, 1 GPU)"  # of 3 gpu and 2 cpu, 3 at a time
    assert all(label("zone", "a") in node for node in coming)
    assert len(nodes_to_come(Cluster(address="auto"), [HEAD, GPU_NODE])) == 2
    config = {**UP, "max_workers": 9}
    assert describe_nodes(nodes_to_come(Cluster(address="auto"), [HEAD])) == "9 x gpu (8 CPU, 1 GPU)"
    config = {}
    assert nodes_to_come(Cluster(address="auto"), [HEAD]) == []


@pytest.mark.slow
def test_a_head_node_that_is_too_slow_to_answer_has_the_config_that_it_told_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (file := tmp_path / "autoscaler.yaml").write_text(json.dumps(UP))
    ray.init(address="local", num_cpus=1, include_dashboard=False)
    options = [f"--gcs-address={ray.get_runtime_context().gcs_address}", f"--autoscaling-config={file}"]
    monitor = subprocess.Popen([sys.executable, "-c", "input()", *options], stdin=subprocess.PIPE)
    try:
        coming = nodes_to_come(Cluster(address="auto"), [HEAD])
        assert describe_nodes(coming) == "3 x gpu (8 CPU, 1 GPU)"
        monkeypatch.setattr(autoscaler, "ANSWER_WITHIN_S", 0.0)
        assert nodes_to_come(Cluster(address="auto"), [HEAD]) == coming
        ray.shutdown()
        ray.init(address="local", num_cpus=1, include_dashboard=False)
        assert nodes_to_come(Cluster(address="auto"), [HEAD]) == [], "another cluster"
    finally:
        monitor.kill()
        monitor.communicate()
        ray.shutdown()
