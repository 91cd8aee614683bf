"""Memory of the CPU that a GPU copies to by itself. To other memory, such as that of a snapshot's files, a processor
copies from a small buffer."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Sequence

import torch

from sweeps_train.compat.torch import lock_pages, unlock_pages


class PageLock:
    """Memory of tensors whose pages are locked until ``release``. Where they cannot be, copies are only slower."""

    def __init__(self, tensors: Sequence[torch.Tensor], device: torch.device):
        """Lock the memory, which takes some tenths of a second for a GiB.

        Args:
            tensors: Tensors of the CPU, whose memory is not unmapped before ``release``.
            device: The GPU that copies; for devices other than CUDA's nothing is locked.
        """
        self._tensors = tensors
        self._locked: list[int] = []
        if device.type != "cuda":
            return
        for begin, end in pages_of(tensors):
            if lock_pages(begin, end - begin):
                self._locked.append(begin)
            else:
                _forget_error(device)

    def release(self) -> None:
        """Unlock the memory, which may be unmapped afterwards."""
        for begin in self._locked:
            unlock_pages(begin)
        self._locked.clear()
        self._tensors = ()


def pages_of(tensors: Iterable[torch.Tensor]) -> list[tuple[int, int]]:
    """First address and end of each run of whole pages that tensors are in; tensors may share a page, and be parts of
    larger ones."""
    runs: list[tuple[int, int]] = []
    for begin, end in sorted(map(_span, (each for each in tensors if each.numel()))):
        first, behind = begin // mmap.PAGESIZE * mmap.PAGESIZE, -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
        if runs and first <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(behind, runs[-1][1]))
        else:
            runs.append((first, behind))
    return runs


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Address of the first byte of a tensor, and that behind its last one."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.itemsize


def _forget_error(device: torch.device) -> None:
    """Make CUDA forget an error that is dealt with, which the next kernel would raise."""
    try:
        torch.zeros(1, device=device)
    except RuntimeError:
        return
