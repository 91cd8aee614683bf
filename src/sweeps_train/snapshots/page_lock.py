"""Memory of the CPU that a GPU copies to by itself. To other memory, such as that of a snapshot's files, a processor
copies from a small buffer."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch

from sweeps_train.compat.torch import lock_pages, unlock_pages


class PageLock:
    """Memory of tensors whose pages are locked until ``release``. Where they cannot be, copies are only slower."""

    def __init__(self, tensors: Iterable[torch.Tensor], device: torch.device):
        """Lock the memory, which takes some tenths of a second for a GiB.

        Args:
            tensors: Tensors of the CPU. All memory that they are parts of is locked.
            device: The GPU that copies; for devices other than CUDA's nothing is locked.
        """
        self._locked: list[torch.UntypedStorage] = []
        if device.type != "cuda":
            return
        for memory in _apart(tensors):
            if lock_pages(memory):
                self._locked.append(memory)
            else:
                _forget_error(device)

    def release(self) -> None:
        """Unlock the memory, which may be unmapped afterwards."""
        for memory in self._locked:
            unlock_pages(memory)
        self._locked.clear()


def _apart(tensors: Iterable[torch.Tensor]) -> Collection[torch.UntypedStorage]:
    """The memory of tensors, of which several may be parts of the same."""
    memories = (each.untyped_storage() for each in tensors)
    return {each.data_ptr(): each for each in memories if each.nbytes()}.values()


def _forget_error(device: torch.device) -> None:
    """Make CUDA forget an error that is dealt with, which the next kernel would raise."""
    try:
        torch.zeros(1, device=device)
    except RuntimeError:
        return
