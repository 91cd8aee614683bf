"""Choice of the number of processes that read batches ahead, with ``data.loader.num_workers=auto``."""

from __future__ import annotations

import os
from dataclasses import dataclass

from sweeps_train.config.loader import Loader
from sweeps_train.workers.distributed import usable_cores

WORTH_A_CHANGE = 0.05
"""Share of the steps' time spent waiting for batches above which more batches are read ahead."""
HELPS = 0.8
"""Maximum ratio of the wait after a change to the wait before it with which the change is kept."""
SETTLE_S = 3.0
"""Seconds of training after a change that are not judged, while processes start and fill their queues."""
MEASURE_S = 5.0
"""Seconds of training by which a setting is judged."""
MOST_PREFETCH = 8


@dataclass(frozen=True)
class ReadAhead:
    """Number of processes that read ahead, and number of batches that each keeps ready."""

    processes: int
    """Processes of each worker."""
    prefetch: int
    """Batches that each process keeps ready."""

    def __str__(self) -> str:
        if not self.processes:
            return "each worker reads its batches itself"
        processes = "1 process" if self.processes == 1 else f"{self.processes} processes"
        return f"each worker has {processes} to read ahead, {self.prefetch} batches each"


class ReadAheadTuner:
    """Increases the number of reading processes, then the batches that each keeps ready, while workers wait for
    batches. A change that does not shorten the wait is undone, and no further one is made.

    All workers come to the same decisions, since they observe the same times.

    >>> tuner = ReadAheadTuner(ReadAhead(0, 2), most=4)
    >>> tuner.observe(10.0, wait_share=0.5)
    'workers waited for batches 50% of the time; from now on each worker has 1 process to read ahead, 2 batches each'
    >>> tuner.setting
    ReadAhead(processes=1, prefetch=2)
    """

    def __init__(self, start: ReadAhead, most: int, *, is_fixed: bool = False):
        """Begin with a setting, which stays if it ``is_fixed``; ``most`` is the largest number of processes of a
        worker."""
        self.setting = start
        self._most = most
        self._before: tuple[ReadAhead, float] | None = None
        """Setting before the last change, and the wait share under it."""
        self._ended = is_fixed
        self._unsettled_s = 0.0 if start.processes == 0 else SETTLE_S
        self._trained_s = self._waited_s = 0.0

    def observe(self, seconds: float, wait_share: float) -> str | None:
        """Adapt to the duration of some steps, and to the share of it in which workers waited for their batches; both
        are equal on all workers. Return a description of a change of the setting; None if it stays."""
        if self._unsettled_s > 0:
            self._unsettled_s -= seconds
            return None
        self._trained_s += seconds
        self._waited_s += seconds * wait_share
        if self._ended or self._trained_s < MEASURE_S:
            return None
        share = self._waited_s / self._trained_s
        self._trained_s = self._waited_s = 0.0
        if self._before is not None and share > HELPS * self._before[1]:
            before, earlier = self._before
            self._ended = True
            self._change(before)
            return (
                f"workers still waited for their batches {share:.0%} of the time, instead of {earlier:.0%} before the "
                f"change, which is undone: {before}"
            )
        larger = self._larger()
        if share <= WORTH_A_CHANGE or larger is None:
            return None
        self._before = self.setting, share
        self._change(larger)
        return f"workers waited for batches {share:.0%} of the time; from now on {larger}"

    def _larger(self) -> ReadAhead | None:
        processes, prefetch = self.setting.processes, self.setting.prefetch
        if processes < self._most:
            return ReadAhead(min(max(1, 2 * processes), self._most), prefetch)
        return ReadAhead(processes, 2 * prefetch) if processes and 2 * prefetch <= MOST_PREFETCH else None

    def _change(self, setting: ReadAhead) -> None:
        self.setting, self._unsettled_s = setting, SETTLE_S


def read_ahead(loader: Loader, *, may_draw: bool, most: int) -> ReadAheadTuner:
    """Return the initial setting in a tuner, which adapts it with ``num_workers=auto`` alone.

    Args:
        loader: The options.
        may_draw: Whether reading a sample may draw random numbers. Only reading processes seed them by the position in
            the data, so there is then at least one: the numbers must not depend on the tuning.
        most: Largest number of processes of a worker.
    """
    if loader.num_workers != "auto":
        return ReadAheadTuner(ReadAhead(loader.num_workers, loader.prefetch), most, is_fixed=True)
    return ReadAheadTuner(ReadAhead(1 if may_draw else 0, loader.prefetch), most)


def processors_of_a_worker() -> int:
    """Return the number of processors that this worker may use: those that Ray reserved for it, otherwise its share of
    the machine's."""
    if reserved := os.environ.get("OMP_NUM_THREADS", ""):
        return max(1, int(reserved.partition(",")[0]))  # OpenMP takes a list, for nested regions
    return max(1, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
