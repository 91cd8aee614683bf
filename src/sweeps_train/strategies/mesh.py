"""The workers as a grid, whose rows and columns talk among themselves."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from sweeps_train.distributed import Workers

_meshes: WeakKeyDictionary[dist.ProcessGroup, dict[tuple[tuple[str, int], ...], DeviceMesh]] = WeakKeyDictionary()


def mesh(workers: Workers, shape: Mapping[str, int]) -> DeviceMesh:
    """The same one for all trainings of a process: its groups have threads and connections, and torch remembers by the
    mesh's shape how it has cut tensors, with the groups of then.

    Args:
        workers: All of them.
        shape: Names and sizes of the dimensions, whose product is the number of workers; neighbours are together in
            the last one.
    """
    world = dist.group.WORLD
    assert world is not None
    made = _meshes.setdefault(world, {})
    key = tuple(shape.items())
    if key not in made:
        made[key] = init_device_mesh(workers.device.type, tuple(shape.values()), mesh_dim_names=tuple(shape))
    return made[key]
