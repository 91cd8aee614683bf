"""Contract with the private names of torch that ``sweeps_train`` uses: a failure here says which of them has moved."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from packaging.version import Version
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from sweeps_train.compat import torch as compat

TORCH = Version(torch.__version__)


@pytest.fixture
def one_worker() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_tensors_are_multiplied_together() -> None:
    tensors = [torch.ones(2), torch.full((3,), 2.0)]
    compat.multiply_in_place(tensors, torch.tensor(4.0))
    assert [each.tolist() for each in tensors] == [[4.0] * 2, [8.0] * 3], "torch._foreach_mul_"


def test_memory_is_allocated_until_its_last_tensor_is_gone() -> None:
    tensor = torch.ones(2)
    view, is_allocated = tensor[1:], compat.memory_of(tensor)
    del tensor
    assert is_allocated(), "StorageWeakRef"
    del view
    assert not is_allocated(), "StorageWeakRef.expired"


def test_a_wrapped_model_ignores_parameters_and_averages_gradients_on_request(one_worker: None) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    compat.ignore_parameters(model, ["0.weight", "0.bias"])
    wrapped = DistributedDataParallel(model)
    for name in ("require_backward_grad_sync", "require_forward_param_sync"):
        assert getattr(wrapped, name) is True, f"DistributedDataParallel.{name}"
    compat.sync_only_on_request(wrapped)
    synchronised: list[int] = []
    wrapped.register_comm_hook(None, lambda _, bucket: _done(synchronised, bucket))
    wrapped(torch.ones(1, 2)).sum().backward()
    assert synchronised == [], "DistributedDataParallel.require_backward_grad_sync"
    compat.prepare_gradient_sync(wrapped)
    wrapped(torch.ones(1, 2)).sum().backward()
    assert synchronised == [3], "DistributedDataParallel.reducer.prepare_for_backward, or the parameters to ignore"


def _done(sizes: list[int], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    sizes.append(bucket.buffer().numel())
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def test_buffers_are_broadcast_on_request_alone(one_worker: None, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped = DistributedDataParallel(nn.BatchNorm1d(2))
    sent: list[int] = []
    monkeypatch.setattr(wrapped, "_sync_module_buffers", sent.append)
    compat.sync_only_on_request(wrapped)
    wrapped(torch.ones(2, 2)).sum().backward()
    assert sent == [], "DistributedDataParallel.require_forward_param_sync"
    compat.exchange_buffers(wrapped)
    assert sent == [0], "DistributedDataParallel._sync_buffers"
    compat.prepare_gradient_sync(wrapped)
    wrapped(torch.ones(2, 2)).sum().backward()
    compat.exchange_buffers(wrapped)
    assert not wrapped.reducer._rebuild_buckets(), "DistributedDataParallel.reducer._rebuild_buckets"


def test_a_profile_lists_spans_of_operations_by_name() -> None:
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        torch.ones(64, 64) @ torch.ones(64, 64)
    spans = list(compat.profiled_spans(profiled, ("aten::mm",)))
    assert len(spans) == 1, "profile.profiler.kineto_results.events()"
    assert spans[0][0] < spans[0][1], "start_ns() and end_ns() of an event"


def test_the_store_of_the_default_group_can_be_read(one_worker: None) -> None:
    compat.default_store().set("key", "value")
    assert dist.distributed_c10d._get_default_store().get("key") == b"value", "_get_default_store"


records_gloo = pytest.mark.skipif(Version("2.7") > TORCH, reason="torch 2.6 records no operations of gloo")


@records_gloo
def test_the_flight_record_of_its_operations_can_be_read(one_worker: None) -> None:
    dist.all_reduce(torch.ones(3))
    record = compat.flight_record()
    assert record is not None, "_dump_fr_trace_json"
    last = json.loads(record)["entries"][-1]
    assert (last["profiling_name"], last["input_sizes"]) == ("gloo:all_reduce", [[3]])


@records_gloo
def test_the_flight_record_is_that_of_nccl_where_nccl_was_used(
    one_worker: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = torch._C._distributed_c10d
    dist.all_reduce(torch.ones(3))
    nccl = {"entries": []}
    monkeypatch.setattr(native, "_dump_nccl_trace_json", lambda **_: json.dumps(nccl).encode(), raising=False)
    record = compat.flight_record()
    assert record is not None
    assert "gloo:all_reduce" in record
    nccl["entries"] = [{"profiling_name": "nccl:all_reduce"}]
    assert compat.flight_record() == json.dumps(nccl)


def test_many_tensors_are_filled_with_zeros() -> None:
    tensors = [torch.ones(2), torch.ones(3, 1)]
    compat.zero_all(tensors)
    assert not any(each.any() for each in tensors)
