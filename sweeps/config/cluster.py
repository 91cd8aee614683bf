"""Schema of the Ray cluster on which a sweep's trials run."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps.config.launch import KubeRay, Slurm
from sweeps_train.config import STRICT, NonNegativeFloat, PositiveFloat, PositiveInt
from sweeps_train.config.fields import NonEmpty
from sweeps_train.config.reach import Flag, Reach

SET_BY_RAY = frozenset(
    {
        *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR"),
        "ZE_AFFINITY_MASK",
        *("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        "ACCELERATE_TORCH_DEVICE",
    }
)
"""Environment variables that Ray sets differently on each worker."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")


@dataclass(config=STRICT, kw_only=True)
class NodeType:
    """Kind of node that Ray's autoscaler may add to a running cluster."""

    resources: Annotated[dict[str, NonNegativeFloat], Reach.NOTHING]
    """Resources of each node: ``{CPU: 8, GPU: 1}``."""
    max_workers: PositiveInt
    """Maximum number of nodes of this type at a time."""
    labels: Annotated[dict[str, str], Reach.NOTHING] = Field(default_factory=dict)
    """Labels of each node: ``{market-type: spot}``."""


@dataclass(config=STRICT, kw_only=True)
class Cluster:
    """Ray cluster on which trials run."""

    address: Annotated[NonEmpty, Reach.CLUSTER] = "local"
    """``local`` starts Ray on this machine for this sweep only; ``auto`` or ``HOST:PORT`` joins a running cluster. For
    ``submit --to ray``: the address of its dashboard, ``http://HOST:8265``."""
    num_cpus: PositiveInt | None = None
    """Number of logical CPUs of a local cluster; default: all of the machine."""
    num_gpus: Annotated[int, Field(ge=0)] | None = None
    """Number of GPUs of a local cluster; default: all of the machine."""
    gpu_memory_gib: PositiveFloat | None = None
    """Memory of one GPU in GiB, with which the estimate of trials' memory is compared; default: that of the smallest
    GPU, of this machine in a dry run, and of the cluster when a sweep starts."""
    check_nodes: Flag = False
    """Whether ``run`` and ``resume`` check the nodes first, as ``doctor`` does, and leave out those that fail a check
    or are slow. Trials start after the check. If a trial fails in a way that suggests a bad node, the trial's nodes are
    checked again; meanwhile other trials are placed elsewhere, if there is room."""
    env: Annotated[list[str], Reach.ENVIRONMENT] = Field(default_factory=list)
    """Environment variables of this process that the workers on all nodes of a running cluster receive: names, or
    prefixes followed by ``*`` (``[HF_TOKEN, "NCCL_*"]``). Only the names are recorded and shown. Workers of a local
    cluster have all variables anyway."""
    node_types: Annotated[dict[str, NodeType], Reach.NOTHING] = Field(default_factory=dict)
    """Nodes that the autoscaler of a running cluster may add, by the name of their type; default: those in the
    autoscaler's config on the head node (``available_node_types``). Set this if the config is elsewhere, as with
    KubeRay."""
    node_timeout_s: PositiveFloat = 3600.0
    """Seconds that a trial waits for nodes that the autoscaler may add; after that it fails and is retried."""
    slurm: Annotated[Slurm | None, Reach.LAUNCH] = None
    """Settings of the job for ``submit --to slurm``."""
    kuberay: Annotated[KubeRay | None, Reach.LAUNCH] = None
    """Settings of the job for ``submit --to kuberay``."""

    def __post_init__(self) -> None:
        for name in self.env:
            if "=" in name:  # the value may be a secret
                raise ValueError(f"env: {name.partition('=')[0]!r} has a value; give only names")
            if _VARIABLE.fullmatch(name) is None:
                raise ValueError(
                    f"env: {name!r} is not the name of an environment variable; give names, or prefixes followed by *, "
                    "such as [HF_TOKEN, 'NCCL_*']"
                )
            if name in SET_BY_RAY:
                raise ValueError(f"env: {name} is different for each worker, and set by Ray; remove it")
