"""Process groups of the strategies that arrange their workers as a grid."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import ProcessGroup
from training_runs import on_two_workers

from sweeps_train.strategies.mesh import mesh
from sweeps_train.workers.distributed import Workers

TIMEOUT = timedelta(seconds=77)


def timeouts() -> list[timedelta]:
    """Timeouts of a group that torch makes, and of the groups of a grid, where the default group has another."""
    dist.distributed_c10d._set_pg_timeout(TIMEOUT)
    grid = mesh(Workers.current(), {"data": dist.get_world_size(), "tensor": 1})
    groups: list[ProcessGroup] = [dist.new_group(), *grid.get_all_groups()]
    return [each._get_backend(torch.device("cpu")).options._timeout for each in groups]


def test_operations_of_all_groups_have_the_timeout_of_the_default_group(tmp_path: Path) -> None:
    for torchs_own, *of_grid in on_two_workers(timeouts, tmp_path):
        assert torchs_own != TIMEOUT
        assert of_grid == [TIMEOUT, TIMEOUT]
