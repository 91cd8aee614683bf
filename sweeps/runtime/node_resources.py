"""Resources of nodes under Ray's names, including their labels."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sweeps.config import SweepConfig

Resources = Mapping[str, float]
NodeResources = TypeVar("NodeResources", bound=Resources)
LABEL = "label:"
HEAD = "node:__internal_head__"
"""Resource that only the head node of a cluster has, and workers never need."""
NODE_ID_LABEL = "ray.io/node-id"
"""Label that Ray gives to every node."""
AMD_DEVICES = Path("/sys/class/kfd/kfd/topology/nodes")
"""Folder in which AMD's driver describes each device of this machine in a subfolder."""


def label(name: str, value: str) -> str:
    """Return the name under which a label is listed among a node's resources."""
    return f"{LABEL}{name}={value}"


def node_id(node: Resources) -> str:
    """Return the id of a node, which is in its labels; empty for a node that has not been started yet.

    >>> node_id({"CPU": 2.0, label(NODE_ID_LABEL, "c0ffee"): float("inf")})
    'c0ffee'
    """
    beginning = label(NODE_ID_LABEL, "")
    return next((name.removeprefix(beginning) for name in node if name.startswith(beginning)), "")


def without_nodes(nodes: Sequence[NodeResources], excluded: Collection[str]) -> list[NodeResources]:
    """Return all nodes but those with these ids."""
    return [node for node in nodes if node_id(node) not in excluded]


def avoiding(nodes: Sequence[str]) -> dict[str, str]:
    """Return a Ray label selector for all nodes except the given ones; empty if none are given."""
    return {NODE_ID_LABEL: f"!in({','.join(nodes)})"} if nodes else {}


def on_node(node: str) -> dict[str, Any]:
    """Return Ray's options of a task or an actor that runs on the node with this id, and reserves no CPU."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


def accelerator(kind: str) -> str:
    """Return Ray's resource name of a GPU model."""
    return f"accelerator_type:{kind}"


def local_resources(config: SweepConfig) -> dict[str, float]:
    """Return the resources of a Ray cluster on this machine, computed without Ray."""
    resources = {"CPU": float(config.cluster.num_cpus or os.cpu_count() or 1)}
    gpus = config.cluster.num_gpus if config.cluster.num_gpus is not None else _count_gpus()
    # Only Ray can find out whether the GPUs are of these types.
    wanted = [config.scaling.accelerator_type, *(pool.accelerator_type for pool in config.scaling.pools.values())]
    of_kind = {accelerator(each): float(gpus) for each in wanted if each and gpus}
    return resources | ({"GPU": float(gpus)} if gpus else {}) | of_kind


def memory_of_node() -> tuple[int, int]:
    """Return the bytes of a node of Ray that starts here for its workers, and for its objects. Ray by itself heeds the
    limit of a container, but not that of a job of Slurm or of a unit of systemd."""
    from sweeps.compat.ray_core import size_of_object_store
    from sweeps_train.memory.machine_memory import available_memory

    available = available_memory()
    objects = size_of_object_store(available)
    return available - objects, objects


def _count_gpus() -> int:
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        if (visible := os.environ.get(name)) is not None:
            return len([device for device in visible.split(",") if device.strip() and device.strip() != "-1"])
    return len(list(Path("/dev").glob("nvidia[0-9]*"))) or sum(map(_is_amd_gpu, AMD_DEVICES.glob("*/properties")))


def _is_amd_gpu(properties: Path) -> bool:
    """Whether a file of AMD's driver describes a GPU, which has vector units, and not a CPU."""
    with contextlib.suppress(OSError):  # the file of a device that this container may not use
        found = re.search(r"^simd_count (\d+)$", properties.read_text(encoding="ascii"), re.MULTILINE)
        return found is not None and int(found[1]) > 0
    return False
