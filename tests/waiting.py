"""Waiting for a condition, within a time that a busy machine also keeps."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], within_s: float = 120, every_s: float = 0.05) -> None:
    """Ask again and again until the condition is true.

    Raises:
        AssertionError: It is not true within the time.
    """
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {within_s:g} s"
        time.sleep(every_s)
