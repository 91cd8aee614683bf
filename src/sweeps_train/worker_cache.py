"""What the trials of a long-lived worker share: read once, and kept while the next trial asks for the same."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_kept: dict[str, tuple[Any, Any]] = {}


def keep(kind: str, key: Any, make: Callable[[], T]) -> T:
    """What is kept under ``key``, or else what ``make`` returns.

    One value of a kind is kept: another key's takes its place, so that memory does not grow with the trials.

    Args:
        kind: Such as ``base model``.
        key: Everything that the value depends on; compared by equality.
        make: Reads or computes the value, which nobody may change afterwards in a way that a later trial could see.
    """
    kept = _kept.get(kind)
    if kept is not None and kept[0] == key:
        value: T = kept[1]
        return value
    if kept is not None:  # before the next is made: both may not fit into memory together
        del kept, _kept[kind]
        gc.unfreeze()  # what a warm worker keeps is frozen, and a model may have reference cycles
        gc.collect()
    made = make()
    _kept[kind] = (key, made)
    return made
