"""The process of a program on a worker: its rank among the others, and the environment that ``torchrun`` would set."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from typing import Literal

import ray
import ray.train
from ray.train.collective import broadcast_from_rank_zero

from sweeps_train.workers.own_folder import start_folder

DISTRIBUTED = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"),
    "ACCELERATE_TORCH_DEVICE",
)
"""Environment variables of Ray's own process group, which a program cannot join, and of the worker's device."""

Processes = Literal["one", "per_node", "per_worker"]


@dataclass(frozen=True)
class Place:
    """Ranks of a worker among the workers of its trial, and the address of the first worker. Each field is also a
    placeholder of programs."""

    rank: int
    local_rank: int
    node_rank: int
    num_workers: int
    workers_per_node: int
    num_nodes: int
    master_address: str
    master_port: int

    @classmethod
    def current(cls) -> Place:
        """Return the place of this worker, with a free port on the first worker; every worker must call it."""
        context = ray.train.get_context()
        rank, size = context.get_world_rank(), context.get_world_size()
        found = (*free_address(), _count_nodes()) if rank == 0 else None
        address, port, num_nodes = broadcast_from_rank_zero(found)
        return cls(
            rank=rank,
            local_rank=context.get_local_rank(),
            node_rank=context.get_node_rank(),
            num_workers=size,
            workers_per_node=context.get_local_world_size(),
            num_nodes=num_nodes,
            master_address=address,
            master_port=port,
        )

    def starts(self, processes: Processes) -> bool:
        """Whether this worker starts a process."""
        return self.rank == 0 or processes == "per_worker" or (processes == "per_node" and self.local_rank == 0)

    def environment(self, processes: Processes) -> dict[str, str]:
        """Return the environment of a process: the worker's own, plus that of ``torchrun`` if each worker has a
        process. A launcher that runs once per node sets the latter itself."""
        inherited = {name: value for name, value in os.environ.items() if name not in DISTRIBUTED}
        if processes == "one":
            return inherited
        meeting = {"GROUP_RANK": self.node_rank, "MASTER_ADDR": self.master_address, "MASTER_PORT": self.master_port}
        own = {
            "RANK": self.rank,
            "LOCAL_RANK": self.local_rank,
            "WORLD_SIZE": self.num_workers,
            "LOCAL_WORLD_SIZE": self.workers_per_node,
        }
        if processes == "per_worker" and (device := os.environ.get("ACCELERATE_TORCH_DEVICE")) is not None:
            inherited["ACCELERATE_TORCH_DEVICE"] = device
        given = meeting | own if processes == "per_worker" else meeting
        return {**inherited, **{name: str(value) for name, value in given.items()}}


def with_python_path(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment with a ``PYTHONPATH`` by which a Python program can import modules of the folder in which
    the sweep was started, and everything that this process can import."""
    path = os.pathsep.join(each for each in [str(start_folder()), *sys.path] if each)
    return {**environment, "PYTHONPATH": path}


def free_address() -> tuple[str, int]:
    """Return the address of this node and a free port on it."""
    address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as free:
        free.bind(("", 0))
        return address, free.getsockname()[1]


def _count_nodes() -> int:
    """Return the number of nodes of this process's worker group, counted by address, as Ray Train does when it assigns
    node ranks."""
    group = ray.util.get_current_placement_group()
    if group is None:
        return 1
    table = ray.util.placement_group_table(group)
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in nodes}
    return len({addresses[node] for node in table["bundles_to_node_id"].values()})
