"""Private names of torch for tensors without values, on which a model of any size can run to compute its memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@contextmanager
def fake_tensors() -> Iterator[None]:
    """Within the block, create tensors with shapes and dtypes, but without values and memory."""
    make_mesh = DeviceMesh.__init__

    def real_mesh(mesh: DeviceMesh, *args: Any, **kwargs: Any) -> None:  # a mesh looks at values, of ranks
        with unset_fake_temporarily():
            make_mesh(mesh, *args, **kwargs)

    with ExitStack() as stack:
        stack.enter_context(patch.object(DeviceMesh, "__init__", real_mesh))
        stack.enter_context(patch.object(nn.Module, "to", _moved))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        yield


def _moved(module: nn.Module, device: Any = None, *_: Any, **__: Any) -> nn.Module:
    """Stand in for ``Module.to``, which cannot replace fake parameters: all stay on one device, and a module moved to
    ``meta`` is dropped."""
    if device is not None and torch.device(device).type == "meta":
        for each in module.modules():
            for name, parameter in list(each.named_parameters(recurse=False)):
                gone = torch.empty(parameter.shape, dtype=parameter.dtype, device="meta")
                setattr(each, name, nn.Parameter(gone, requires_grad=parameter.requires_grad))
    return module


@contextmanager
def fake_process_group(size: int) -> Iterator[None]:
    """Make this process rank 0 of a process group without other workers, whose collectives send nothing; with a size of
    one there is no group."""
    if size == 1:
        yield
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def documents_alone() -> Iterator[None]:
    """Stop transformers models from building an attention mask for the documents of a packed sequence. They read
    the positions to find out whether there are several documents; without values they would always build one."""
    from transformers import masking_utils

    with patch.object(masking_utils, "find_packed_sequence_indices", lambda position_ids: None):
        yield


class PeakMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tracks the peak bytes of all live tensors while it is active."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = 0
        self.peak = 0
        self._sizes: dict[int, int] = {}
        """Bytes of each storage, by its address."""

    def add(self, tensor: torch.Tensor) -> None:
        """Count a tensor's storage unless it is counted already."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address not in self._sizes:
            self._set(address, storage.nbytes())
            weakref.finalize(storage, self._remove, address)

    def _set(self, address: int, size: int) -> None:
        self.now += size - self._sizes.get(address, 0)
        self._sizes[address] = size
        self.peak = max(self.peak, self.now)

    def _remove(self, address: int) -> None:
        self.now -= self._sizes.pop(address)

    def __enter__(self) -> PeakMemory:
        resize = torch.UntypedStorage.resize_

        def resized(storage: torch.UntypedStorage, size: int) -> Any:  # FSDP frees and allocates what it gathers so
            result = resize(storage, size)
            if storage._cdata in self._sizes:
                self._set(storage._cdata, storage.nbytes())
            return result

        self._patched = patch.object(torch.UntypedStorage, "resize_", resized)
        self._patched.start()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._patched.stop()
        super().__exit__(kind, error, traceback)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, torch.Tensor):
                self.add(each)
        return result
