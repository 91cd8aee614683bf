"""The pages that a GPU copies a worker's part of a snapshot to. What the GPU does with them is in test_gpu.py."""

from __future__ import annotations

import mmap

import torch

from sweeps_train.snapshots.page_lock import PageLock, pages_of

PAGE = mmap.PAGESIZE


def aligned(pages: int) -> torch.Tensor:
    """Bytes of so many pages, from the beginning of one."""
    memory = torch.zeros((pages + 1) * PAGE, dtype=torch.uint8)
    return memory[-memory.data_ptr() % PAGE :][: pages * PAGE]


def test_the_pages_of_the_own_parts_alone_are_locked() -> None:
    file = aligned(8)
    start = file.data_ptr()
    mine = [file[10:20], file[4 * PAGE + 1 : 5 * PAGE]]
    assert pages_of(mine) == [(start, start + PAGE), (start + 4 * PAGE, start + 5 * PAGE)]


def test_parts_that_share_a_page_or_touch_are_locked_together() -> None:
    file = aligned(4)
    start = file.data_ptr()
    parts = [file[2 * PAGE : 3 * PAGE], file[PAGE - 8 : PAGE + 8], file[:4], file[PAGE + 8 : 2 * PAGE]]
    assert pages_of(parts) == [(start, start + 3 * PAGE)]


def test_the_span_of_columns_is_locked() -> None:
    matrix = aligned(4).view(torch.float32).view(4, -1)
    start = matrix.data_ptr()
    assert pages_of([matrix[:, :2]]) == [(start, start + 4 * PAGE)]
    assert pages_of([matrix[1:3, :2], matrix[:0]]) == [(start + PAGE, start + 3 * PAGE)]


def test_nothing_is_locked_without_a_gpu() -> None:
    lock = PageLock([torch.zeros(4)], torch.device("cpu"))
    lock.release()
    assert not torch.zeros(4).is_pinned()
