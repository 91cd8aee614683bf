"""Memory of CPUs that is freed and needed again in every step."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_LARGEST = 32 * 2**20
"""Bytes of one tensor up to which the heap is used: glibc takes no more."""


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Within, this process keeps what a step has freed for the next one; afterwards it gives it back.

    By default glibc gives memory back to the system from 128 KiB on, and raises that bound by what happens to be freed.
    Where it stays low, each step's activations are pages that the system clears and maps again: of a step of 70 ms that
    took 4 ms, in 1,500 page faults. What the environment says (``MALLOC_*``) comes first; other libraries are left
    alone.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt") or any(name.startswith("MALLOC_") for name in os.environ):
        yield
        return
    library.mallopt(_M_MMAP_THRESHOLD, _LARGEST)
    library.mallopt(_M_TRIM_THRESHOLD, -1)  # never
    # Threads but the first have heaps of this size, which are unmapped, whatever that threshold, unless so much is
    # wanted to be free.
    library.mallopt(_M_TOP_PAD, 2 * _LARGEST)
    try:
        yield
    finally:
        library.mallopt(_M_TRIM_THRESHOLD, 2 * _LARGEST)  # what glibc itself sets beside such a bound
        library.mallopt(_M_TOP_PAD, 128 * 2**10)  # its default
        library.malloc_trim(0)
