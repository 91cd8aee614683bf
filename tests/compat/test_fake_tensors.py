"""Contract with the private names of torch for tensors without values."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from packaging.version import Version
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from sweeps_train.compat.fake_tensors import PeakMemory, fake_process_group, fake_tensors

GIB = 2**30


def test_a_layer_larger_than_any_memory_is_run_and_its_peak_is_known() -> None:
    with fake_tensors(), PeakMemory() as memory:
        layer = nn.Linear(2**20, 2**20, bias=False)
        assert memory.now == 4 * 2**40
        layer(torch.zeros(1, 2**20)).sum().backward()
        assert 8 * 2**40 <= memory.peak < 8.1 * 2**40
    assert nn.Module.to(nn.Linear(1, 1), torch.float64).weight.dtype == torch.float64, "Module.to is as before"


def test_memory_that_is_freed_or_resized_counts_no_more() -> None:
    with fake_tensors(), PeakMemory() as memory:
        kept, dropped = torch.zeros(GIB // 4), torch.zeros(GIB // 4)
        assert memory.now == 2 * GIB
        del dropped
        assert memory.now == GIB
        kept.untyped_storage().resize_(0)
        assert memory.now == 0
        assert memory.peak == 2 * GIB


@pytest.mark.skipif(
    Version(torch.__version__) < Version("2.7"),
    reason="torch 2.6 cannot do collectives of tensors without values: memory of several workers is not estimated",
)
def test_collectives_of_workers_that_do_not_exist_return() -> None:
    with fake_process_group(4):
        assert dist.get_world_size() == 4
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        with fake_tensors():
            dist.all_reduce(torch.ones(3))
            assert mesh["b"].size() == 2
    assert not dist.is_initialized()


def test_a_part_of_a_model_can_be_given_up() -> None:
    with fake_tensors():
        part = nn.Sequential(nn.Linear(2, 2))
        part.to("meta")
        assert all(each.is_meta for each in part.parameters())
