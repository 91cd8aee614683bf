"""Limits Python's garbage collection in the driver: objects that live as long as the sweep, such as libraries and the
trials of earlier sessions, are not searched."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Collect no garbage until ``collect_from_now_on``, since a sweep that starts makes hardly any. After the block,
    collection is as it was before."""
    was_enabled, frozen = gc.isenabled(), gc.get_freeze_count()
    gc.collect()  # such as models that a notebook has dropped
    gc.disable()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()
        (gc.enable if was_enabled else gc.disable)()


def collect_from_now_on() -> None:
    """Collect garbage among the objects that are made from now on."""
    if gc.get_freeze_count():  # what the stage before has left; the first time nothing is garbage
        gc.collect()
    gc.freeze()
    gc.enable()
