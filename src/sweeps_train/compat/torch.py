"""Private and undocumented names of torch."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import profile

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_dtensor(tensor: object) -> TypeGuard[DTensor]:
    """Whether a tensor is sharded by torch over workers. This does not import torch's slow module for sharding,
    without which no tensor is sharded."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_shard(tensor: torch.Tensor) -> torch.Tensor:
    """Return this worker's shard of a ``DTensor``; a plain tensor is returned unchanged."""
    return tensor.to_local() if is_dtensor(tensor) else tensor


def memory_of(tensor: torch.Tensor) -> Callable[[], bool]:
    """Return a function that tells whether the tensor's memory is still allocated; it does not keep the memory."""
    reference = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
    return lambda: not reference.expired()  # type: ignore[no-untyped-call]


def uncompile(module: nn.Module) -> None:
    """Undo ``module.compile()``, for which torch has no method."""
    module._compiled_call_impl = None


def multiply_in_place(tensors: list[torch.Tensor], factor: float | torch.Tensor) -> None:
    """Multiply tensors of one device by a number, using few kernels on a GPU."""
    torch._foreach_mul_(tensors, factor)


def ignore_parameters(model: nn.Module, names: Iterable[str]) -> None:
    """Make ``DistributedDataParallel`` neither broadcast nor average these parameters of a model it will wrap."""
    ignore = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
    ignore(model, list(names))  # type: ignore[no-untyped-call]


def sync_only_on_request(model: DistributedDataParallel) -> None:
    """Average gradients only after ``prepare_gradient_sync``, and send buffers only by ``exchange_buffers``.

    Unlike ``no_sync``, this includes the last forward pass of a step, which would otherwise promise a backward pass
    that a worker out of memory cannot make.
    """
    model.require_backward_grad_sync = model.require_forward_param_sync = False


def prepare_gradient_sync(model: DistributedDataParallel) -> None:
    """Make the next backward pass average gradients; a synchronised forward pass does the same at its end."""
    model.reducer.prepare_for_backward([])


def exchange_buffers(model: DistributedDataParallel) -> None:
    """Broadcast rank 0's buffers, and once per training the order in which gradients are sent."""
    model.reducer._rebuild_buckets()
    if model.modules_buffers:  # torch's list, made once: looking through all modules would take part of each step
        model._sync_buffers()  # type: ignore[no-untyped-call]


def shard_place(tensor: DTensor) -> tuple[slice, ...] | None:
    """Return the place of this worker's shard in the full tensor; None if the shard is empty, or if a worker of lower
    rank holds the same one."""
    coordinate = tensor.device_mesh.get_coordinate()
    if coordinate is None or tensor.to_local().numel() == 0:
        return None
    if any(each.is_replicate() and at for each, at in zip(tensor.placements, coordinate, strict=True)):
        return None
    return local_place(tensor)


def local_place(tensor: DTensor) -> tuple[slice, ...]:
    """Return the place of this worker's shard in the full tensor, even if it is empty or other workers have the same
    one."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset  # takes long to import

    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(slice(start, start + size) for start, size in zip(offset, shape, strict=True))


def default_store() -> Any:
    """Return the ``Store`` through which the workers of torch's default process group found each other."""
    return dist.distributed_c10d._get_default_store()


def follow_default_timeout(group: dist.ProcessGroup, device: torch.device) -> None:
    """Give a process group for tensors of a device the timeout of the default group, instead of torch's own default of
    10 minutes with NCCL."""
    default = dist.distributed_c10d._get_default_group()
    with contextlib.suppress(RuntimeError, AttributeError):  # other backends than NCCL and gloo have no timeout
        group._get_backend(device)._set_default_timeout(default._get_backend(device).options._timeout)


def flight_record() -> str | None:
    """Return the last collective operations of this process as JSON, with their states: NCCL's if there are any, else
    gloo's; None if torch's flight recorder is off."""
    from torch._C import _distributed_c10d as native

    for name in ("_dump_nccl_trace_json", "_dump_fr_trace_json"):  # the first is missing in builds for CPUs
        dump = getattr(native, name, None)
        record = dump(includeCollectives=True, onlyActive=False) if dump is not None else b""
        text = record.decode(errors="replace") if isinstance(record, bytes) else str(record)
        if json.loads(text or "{}").get("entries"):
            return text
    return None


def profiled_spans(profiled: profile, prefixes: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Yield the start and end in nanoseconds of every profiled event whose name begins with one of ``prefixes``.

    The public ``events()`` makes an object of each event, which takes longer than a training step.
    """
    assert profiled.profiler is not None and profiled.profiler.kineto_results is not None
    for event in profiled.profiler.kineto_results.events():
        if event.name().startswith(prefixes):
            yield event.start_ns(), event.end_ns()


def zero_all(tensors: list[torch.Tensor]) -> None:
    """Fill tensors with zeros, using few kernels."""
    torch._foreach_zero_(tensors)


def lock_pages(address: int, size: int) -> bool:
    """Page-lock CPU memory, so that CUDA GPUs copy to and from it by DMA; return whether it worked."""
    for_all_gpus = 1  # cudaHostRegisterPortable
    return _succeeded(_cuda_runtime().cudaHostRegister(address, size, for_all_gpus))


def unlock_pages(address: int) -> bool:
    """Undo ``lock_pages``; return whether it worked."""
    return _succeeded(_cuda_runtime().cudaHostUnregister(address))


def _cuda_runtime() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def _succeeded(status: Any) -> bool:
    """Whether a CUDA call succeeded; if not, clears CUDA's error, which the next kernel would raise."""
    if int(status) == 0:  # a member of an enumeration, and every member is true
        return True
    with contextlib.suppress(RuntimeError):
        torch.zeros(1, device="cuda")
    return False
