"""Python's garbage collection in the driver, which does not search what lives as long as the sweep: the libraries, and
the trials of earlier sessions."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Collect no garbage until ``collect_from_now_on``, since a sweep that starts makes hardly any; its end undoes
    both."""
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


def collect_from_now_on() -> None:
    """Collect garbage among the objects that are made from now on."""
    gc.freeze()
    gc.enable()
