"""Signs of life of a worker that prepares a trial: imports, downloads, tokenizing and loading may take hours without a
report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sweeps.runtime.trial_assignment import Assignment

MOST_S = 10.0
"""Maximum seconds between two signs of life."""


@contextmanager
def signs_of_life(assignment: Assignment) -> Iterator[Callable[[], None]]:
    """Tell the broker regularly, from a thread, that this worker prepares a trial.

    The signs end after the maximum time of the preparation, so that workers that wait forever, such as for a lock,
    eventually count as hanging. Workers whose process has stopped count as hanging sooner.

    Yields:
        Function to call when the worker is prepared; from then on its reports are the signs of life.
    """
    over = threading.Event()
    every_s = min(MOST_S, assignment.hang_timeout_s / 4)

    def give() -> None:
        ends = time.monotonic() + assignment.prepare_timeout_s
        while not over.wait(every_s) and time.monotonic() < ends:
            assignment.broker.alive(*assignment.key)

    threading.Thread(target=give, name="signs-of-life", daemon=True).start()
    try:
        yield over.set
    finally:
        over.set()
