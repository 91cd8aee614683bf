"""The pages that a GPU copies a worker's part of a snapshot to. What the GPU does with them is in test_gpu.py."""

from __future__ import annotations

import mmap

import pytest
import torch

from sweeps_train.snapshots import page_lock
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


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Addresses of what is locked, without a GPU."""
    addresses: list[int] = []

    def lock(address: int, size: int) -> bool:
        if address in addresses:
            return False
        addresses.append(address)
        return True

    def unlock(address: int) -> bool:
        addresses.remove(address)
        return True

    monkeypatch.setattr(page_lock, "lock_pages", lock)
    monkeypatch.setattr(page_lock, "unlock_pages", unlock)
    return addresses


def test_memory_is_unlocked_once(locked: list[int]) -> None:
    file = aligned(4)
    gpu = torch.device("cuda")
    first, second = PageLock([file[:8], file[2 * PAGE :]], gpu), PageLock([file[:8]], gpu)
    assert locked == [file.data_ptr(), file.data_ptr() + 2 * PAGE]
    second.release()  # has locked nothing, since the first one had
    assert len(locked) == 2
    first.release()
    first.release()
    assert locked == []


def test_a_lock_that_nobody_has_any_more_is_released_before_its_memory_is_unmapped(locked: list[int]) -> None:
    lock = PageLock([aligned(1)], torch.device("cuda"))
    assert len(locked) == 1
    del lock
    assert locked == []


def test_columns_are_not_locked_and_neither_is_anything_without_a_gpu(locked: list[int]) -> None:
    matrix = aligned(4).view(4, -1)
    lock = PageLock([matrix[:, :2]], torch.device("cuda"))
    other = PageLock([matrix], torch.device("cpu"))
    assert locked == []
    lock.release()
    other.release()
