"""Device meshes: the workers as a grid, with a process group for each row and column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from weakref import WeakKeyDictionary

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from sweeps_train.compat.torch import follow_default_timeout
from sweeps_train.workers.distributed import Workers

_meshes: WeakKeyDictionary[dist.ProcessGroup, dict[tuple[tuple[str, int], ...], DeviceMesh]] = WeakKeyDictionary()


def mesh(workers: Workers, shape: Mapping[str, int]) -> DeviceMesh:
    """Create a device mesh with dimensions of these sizes, or return the existing one of that shape. Ranks that differ
    by one are neighbours in the last dimension.

    All trainings of a process share a mesh: its process groups have threads and connections, and torch caches shardings
    by the mesh's shape, with the groups of the first such mesh.
    """
    world = dist.group.WORLD
    assert world is not None
    meshes = _meshes.setdefault(world, {})
    key = tuple(shape.items())
    if key not in meshes:
        made = init_device_mesh(workers.device.type, tuple(shape.values()), mesh_dim_names=tuple(shape))
        for group in made.get_all_groups():
            follow_default_timeout(group, workers.device)
        meshes[key] = made
    return meshes[key]


def replicas(workers: Workers, dimension: DeviceMesh) -> Workers:
    """Return this worker's place among the model's replicas, which lie along one dimension of a mesh."""
    return replace(workers, rank=dimension.get_local_rank(), size=dimension.size(), group=dimension.get_group())
