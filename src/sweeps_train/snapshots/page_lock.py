"""Page-locked CPU memory, to which a GPU copies by DMA. Copies to other memory, such as that of a snapshot's files, go
through a small buffer and a processor."""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Iterable, Sequence

import torch

from sweeps_train.compat.torch import lock_pages, unlock_pages


class PageLock:
    """Memory of tensors that stays page-locked until ``release``. If it cannot be locked, copies are only slower."""

    def __init__(self, tensors: Sequence[torch.Tensor], device: torch.device):
        """Lock the memory of tensors of the CPU, which are kept until ``release``, for copies by a GPU; for devices
        other than CUDA's nothing is locked. Tensors that are not contiguous are left out: torch copies to them through
        other memory."""
        locked: list[int] = []
        # Memory that was unmapped while it was locked would be taken for locked when it is mapped again.
        self._finalizer = weakref.finalize(self, _unlock, locked, tensors)
        self._finalizer.atexit = False
        if device.type != "cuda":
            return
        for begin, end in pages_of(each for each in tensors if each.is_contiguous()):
            if lock_pages(begin, end - begin):
                locked.append(begin)

    def release(self) -> None:
        """Unlock the memory, which may be unmapped afterwards."""
        self._finalizer()


def _unlock(locked: list[int], _tensors: Sequence[torch.Tensor]) -> None:
    for begin in locked:
        unlock_pages(begin)


def pages_of(tensors: Iterable[torch.Tensor]) -> list[tuple[int, int]]:
    """Return the start and end address of each run of whole pages that contain contiguous tensors; several tensors may
    share a page."""
    runs: list[tuple[int, int]] = []
    for begin, end in sorted((each.data_ptr(), each.data_ptr() + each.nbytes) for each in tensors if each.numel()):
        first, behind = begin // mmap.PAGESIZE * mmap.PAGESIZE, -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
        if runs and first <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(behind, runs[-1][1]))
        else:
            runs.append((first, behind))
    return runs
