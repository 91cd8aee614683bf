"""Pages of memory that a GPU copies to by itself: those of a snapshot's files, which would otherwise be filled by a
processor from a small buffer."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch


class PageLock:
    """Memory of tensors that is locked until ``release``; where it cannot be, copies are only slower."""

    def __init__(self, tensors: Iterable[torch.Tensor], device: torch.device):
        """Lock the memory, which takes some tenths of a second for a GiB.

        Args:
            tensors: Tensors of the CPU, or parts of them: the whole memory behind them is locked. They keep it.
            device: The GPU that copies.
        """
        self._locked: list[torch.UntypedStorage] = []
        if device.type != "cuda":
            return
        for storage in _apart(tensors):
            if torch.cuda.cudart().cudaHostRegister(storage.data_ptr(), storage.nbytes(), _BY_ALL_GPUS):
                _forget_error(device)
            else:
                self._locked.append(storage)

    def release(self) -> None:
        """Unlock the memory, which may be unmapped afterwards."""
        for storage in self._locked:
            torch.cuda.cudart().cudaHostUnregister(storage.data_ptr())
        self._locked.clear()


_BY_ALL_GPUS = 1
"""``cudaHostRegisterPortable``."""


def _apart(tensors: Iterable[torch.Tensor]) -> Collection[torch.UntypedStorage]:
    """The memory of tensors, of which several may be parts of the same."""
    storages = (each.untyped_storage() for each in tensors)
    return {each.data_ptr(): each for each in storages if each.nbytes()}.values()


def _forget_error(device: torch.device) -> None:
    """Make CUDA forget an error that has been handled, which the next kernel would raise."""
    try:
        torch.zeros(1, device=device)
    except RuntimeError:
        return
