"""Objects shared by successive trials of a worker: loaded once, and kept while trials need them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from sweeps_train.workers.own_folder import start_folder

if TYPE_CHECKING:
    from pathlib import Path

    import torch

T = TypeVar("T")


@runtime_checkable
class HasWeights(Protocol):
    """A model, or an object that holds one."""

    def parameters(self) -> Iterable[torch.Tensor]:
        """Return all weights."""


_cache: dict[str, tuple[Any, Any]] = {}
"""Key and value of the object of each kind."""


def cached(kind: str, key: Any, make: Callable[[], T]) -> T:
    """Return the cached object with this key, or create it with ``make``.

    One object of each kind is cached, and replaced when another key is asked for, so that memory does not grow with the
    number of trials.

    Args:
        kind: Kind of object, such as ``base model``.
        key: Everything that the object depends on; compared by equality. Relative paths in it are those of the folder
            in which the sweep was started.
        make: Loads or computes the object. It must not be changed later in a way that another trial could see.

    Example:
        >>> cached("primes", 5, lambda: [2, 3, 5]) is cached("primes", 5, lambda: [2, 3, 5])
        True
    """
    key = (_folder_of_paths(), key)
    entry = _cache.get(kind)
    if entry is not None and entry[0] == key:
        value: T = entry[1]
        return value
    del entry
    evict(kind)  # freed before the next one is made: both may not fit into memory together
    made = make()
    _cache[kind] = (key, made)
    return made


def _folder_of_paths() -> Path | None:
    with suppress(FileNotFoundError):  # it has been removed; absolute paths need none
        return start_folder()
    return None


def evict(kind: str) -> None:
    """Free the cached object of a kind, if there is one, and the memory of its weights if it is a model.

    Data sets are not looked at: ours have no reference cycles, and cycles in a user's own are freed together with
    everything else that a trial leaves.
    """
    _, value = _cache.pop(kind, (None, None))
    if not isinstance(value, HasWeights):
        return
    from sweeps_train.compat.torch import memory_of  # imports torch, which estimators do without

    weights = [memory_of(each) for each in value.parameters()]
    del value

    def is_held() -> bool:
        return any(is_allocated() for is_allocated in weights)

    if is_held():  # reference cycles of the last trial refer to them
        gc.collect()
    if is_held():  # and are among the objects that outlived a trial, which are frozen
        gc.unfreeze()
        gc.collect()  # which takes seconds in a process that has imported torch and transformers
        gc.freeze()  # else every later collection would search all objects of the libraries, too
