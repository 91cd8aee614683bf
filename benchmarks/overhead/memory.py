"""Memory of a process and all its descendants, sampled while it runs."""

from __future__ import annotations

import contextlib
import threading
import time

import psutil

EVERY_S = 0.5


class MemorySampler:
    """Samples the proportional set size, in which pages that processes share count once.

    Without it (only Linux has it), resident sizes are summed.
    """

    def __init__(self, pid: int):
        self._process = psutil.Process(pid)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.samples: list[tuple[float, float]] = []
        """Unix times, and MiB."""

    def __enter__(self) -> MemorySampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(EVERY_S):
            with contextlib.suppress(psutil.NoSuchProcess):
                family = [self._process, *self._process.children(recursive=True)]
                self.samples.append((time.time(), sum(_mib(process) for process in family)))


def _mib(process: psutil.Process) -> float:
    try:
        with open(f"/proc/{process.pid}/smaps_rollup", encoding="ascii") as rollup:  # noqa: PTH123 - it is no real file
            kib = next(int(line.split()[1]) for line in rollup if line.startswith("Pss:"))
        return kib / 1024
    except (OSError, StopIteration):
        pass
    try:
        return float(process.memory_info().rss) / 2**20
    except psutil.NoSuchProcess:
        return 0.0
