"""Detects workers that compute much slower than the others, which wait for them in every step."""

from __future__ import annotations

import socket
import statistics
from collections.abc import Callable, Sequence

from sweeps_train.workers.distributed import Workers

SLOW = 1.5
"""Ratio of a worker's part of a step to the median of the others' above which the worker is slow."""
SUCCESSIVE = 3
"""Number of successive measurements in which a worker must be slow."""


class SlowWorkers:
    """Finds slow workers by the share of each step in which a worker does not wait for others. All workers see the same
    values, and call the same methods."""

    def __init__(self, workers: Workers, note: Callable[[str], None]):
        self._workers, self._note = workers, note
        self._ratios: list[list[float]] = [[] for _ in range(workers.size)]
        """Ratios of each worker's time to that of the others, in the measurements since it became slow."""

    def observe(self, busy: Sequence[float]) -> None:
        """Add the part of a step, from 0 to 1, in which each worker computed or waited for data, by rank; tell the user
        about workers that have become slow."""
        became_slow = []
        for rank, (own, ratios) in enumerate(zip(busy, self._ratios, strict=True)):
            usual = statistics.median([*busy[:rank], *busy[rank + 1 :]])
            if own <= SLOW * usual:
                ratios.clear()
                continue
            ratios.append(own / usual if usual else SLOW)
            if len(ratios) == SUCCESSIVE:
                became_slow.append(rank)
        if became_slow:
            hosts = self._workers.gather(socket.gethostname())
            for rank in became_slow if hosts else ():
                times = statistics.median(self._ratios[rank])
                self._note(
                    f"worker {rank} on {hosts[rank]} is slow: its part of a step takes {times:.1f} times as long as "
                    "that of the others, which wait for it"
                )


def busy_parts(communication: Sequence[float], data_wait: Sequence[float]) -> list[float]:
    """Return the share of a step in which each worker did not wait for others, from 0 to 1.

    Args:
        communication: Part of the time after its batch had arrived in which each worker communicated, or waited for
            others to do so.
        data_wait: Part of the whole step in which it waited for its batch.

    Example:
        >>> busy_parts([0.75, 0.0], [0.0, 0.5])
        [0.25, 1.0]
    """
    return [1 - share * (1 - wait) for share, wait in zip(communication, data_wait, strict=True)]
