"""Tests run in memory where there is room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from base_folder import has_room


def test_a_file_system_in_memory_is_taken_if_it_has_room(small_disk: Callable[[int], Path]) -> None:
    folder = small_disk(64)
    assert has_room(folder, 2**15)
    assert not has_room(folder)
    assert not has_room(folder.parent / "work", 0), "a folder below is no file system of its own"
