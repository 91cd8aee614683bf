"""Nodes that Ray's autoscaler may add to a running cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeps.config.cluster import Cluster, NodeType
from sweeps.runtime.node_resources import HEAD, label

ANSWER_WITHIN_S = 30.0
"""Maximum seconds for a process on the head node to answer. Without any answer, the cluster counts as fixed in size."""
NODE_TYPE_LABEL = "ray.io/node-group"
"""Label with the name of a node's type. Ray's second autoscaler sets it on every node, the first one only on the head
node."""
ASKED = ("max_workers", "available_node_types", "head_node_type")
"""Keys of the autoscaler's config that determine how far the cluster may grow."""
DEFAULT_MAX_WORKERS = 2
"""Maximum number of nodes that Ray's autoscaler adds if its config does not set one."""


def nodes_to_come(cluster: Cluster, nodes: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """Return the nodes that the autoscaler may still add to the connected cluster; empty without an autoscaler.

    Args:
        cluster: Config of the cluster. Its ``node_types``, if set, replace those of the autoscaler's config.
        nodes: Resources and labels of the nodes that the cluster has.
    """
    if cluster.address == "local":
        return []
    config = {} if cluster.node_types else _config_on_head()
    types = cluster.node_types or _node_types(config)
    coming, present = [], 0
    for name, kind in types.items():
        alive = sum(_is_of(node, name, kind) for node in nodes)
        coming += [_node(name, kind)] * (kind.max_workers - alive)
        present += alive
    # If the limit on all nodes is below the sum of the types' limits, the largest nodes count.
    coming.sort(key=lambda node: (node.get("GPU", 0.0), node.get("CPU", 0.0)), reverse=True)
    most = sum(kind.max_workers for kind in types.values())
    return coming[: max(0, min(most, config.get("max_workers", most)) - present)]


def _is_of(node: Mapping[str, float], name: str, kind: NodeType) -> bool:
    """Whether a node has a type: by its label, otherwise by its CPUs and GPUs."""
    if any(each.startswith(label(NODE_TYPE_LABEL, "")) for each in node) or HEAD in node:
        return label(NODE_TYPE_LABEL, name) in node
    return all(node.get(each, 0.0) == kind.resources.get(each, 0.0) for each in ("CPU", "GPU"))


def describe_nodes(nodes: Sequence[Mapping[str, float]]) -> str:
    """Describe nodes by type, as ``4 x gpu (8 CPU, 1 GPU)``."""
    counts = Counter(_description(node) for node in nodes)
    return ", ".join(f"{count} x {each}" for each, count in counts.items())


def describe_resources(nodes: Sequence[Mapping[str, float]]) -> str:
    """Describe the CPUs and GPUs of nodes together, as ``12 CPU, 2 GPU``."""
    return ", ".join(f"{sum(node.get(name, 0) for node in nodes):g} {name}" for name in ("CPU", "GPU"))


def _description(node: Mapping[str, float]) -> str:
    start = label(NODE_TYPE_LABEL, "")
    name = next(each.removeprefix(start) for each in node if each.startswith(start))
    return f"{name} ({', '.join(f'{amount:g} {each}' for each, amount in node.items() if each in ('CPU', 'GPU'))})"


def _node(name: str, kind: NodeType) -> dict[str, float]:
    labels = {**kind.labels, NODE_TYPE_LABEL: name}
    return dict(kind.resources) | {label(each, value): float("inf") for each, value in labels.items()}


def _node_types(config: Mapping[str, Any]) -> dict[str, NodeType]:
    """Return the node types in the autoscaler's config; the head's type only if the autoscaler may add nodes of it."""
    known = {}
    for name, kind in config.get("available_node_types", {}).items():
        is_head = name == config.get("head_node_type")
        most = kind.get("max_workers", 0 if is_head else config.get("max_workers", DEFAULT_MAX_WORKERS))
        if most > 0:
            resources = {each: float(amount) for each, amount in (kind.get("resources") or {}).items()}
            known[name] = NodeType(resources=resources, max_workers=most, labels=kind.get("labels") or {})
    return known


_answers: dict[str, dict[str, Any]] = {}
"""Last config that the head node has sent, by the id of the driver's node; jobs of two clusters may share an id."""


def _config_on_head() -> dict[str, Any]:
    """Return the config of the cluster's autoscaler; empty if there is none, or its config is not on the head node. If
    the node is too slow to answer, it is the config that it told before."""
    import ray

    own = ray.get_runtime_context().get_node_id()
    ask = ray.remote(autoscaler_config).options(num_cpus=0, max_retries=0, resources={HEAD: 0.001})
    try:
        _answers[own] = ray.get(ask.remote(), timeout=ANSWER_WITHIN_S)
    except ray.exceptions.RayError:
        return _answers.get(own, {})
    return _answers[own]


def autoscaler_config() -> dict[str, Any]:
    """Read the config with which the autoscaler on this head node was started, by ``ray up`` or ``ray start
    --autoscaling-config``. Ray offers no other way to read it."""
    import psutil
    import ray
    import yaml

    address = f"--gcs-address={ray.get_runtime_context().gcs_address}"
    option = "--autoscaling-config="
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        files = [word.removeprefix(option) for word in words if word.startswith(option)] if address in words else []
        if files:
            try:
                config = yaml.safe_load(Path(files[0]).expanduser().read_text(encoding="utf-8"))
            except (OSError, yaml.YAMLError):  # a file that is gone: the autoscaler read it long ago
                return {}
            return {key: config[key] for key in ASKED if key in config}
    return {}
