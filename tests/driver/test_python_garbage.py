"""Python's garbage collection while a driver runs, and after it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from sweeps.driver.python_garbage import collect_from_now_on, without_collection


class Node:
    """An object that refers to itself, which only a collection can free."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def libraries_are_frozen() -> Iterator[None]:
    gc.freeze()  # a collection of all that was imported takes a second
    yield
    gc.freeze()  # as before; otherwise every collection of the tests after these would search it, too


def test_what_a_stage_of_a_search_has_left_is_collected_before_the_next_one() -> None:
    with without_collection():
        assert not gc.isenabled()
        collect_from_now_on()
        assert gc.isenabled()
        left = weakref.ref(Node())
        collect_from_now_on()
        assert left() is None


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_sweep_leaves_the_collection_of_a_notebook_as_it_was(is_enabled: bool) -> None:
    try:
        gc.unfreeze()
        if not is_enabled:
            gc.freeze()
            gc.disable()
        frozen = gc.get_freeze_count()
        with without_collection():
            collect_from_now_on()
        assert gc.isenabled() is is_enabled
        assert (gc.get_freeze_count() > 0) is (frozen > 0)
    finally:
        gc.unfreeze()
        gc.enable()
