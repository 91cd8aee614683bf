"""Trainings in turns: all are started and wait at a gate, and each in turn makes a block of steps.

So a machine that is slower for a minute is slower for all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from free_port import free_port

from trained import gate
from trained.workloads import Workload

WARMUP_BLOCKS = 3
"""First blocks, which are not measured."""


@dataclass
class Arm:
    """Measurements of one arm."""

    starts: list[float] = field(default_factory=list)
    """Seconds from the start of its processes to the end of the first step."""
    blocks: list[float] = field(default_factory=list)
    """Seconds of each measured block."""
    cpu: list[float] = field(default_factory=list)
    """Processor seconds of all workers together in each of them, which do not depend on other load."""
    peak_mib: float = 0.0
    """Peak memory of the largest worker."""
    peak_gpu_mib: float = 0.0
    """Peak GPU memory of the largest worker."""
    last: dict[str, float] = field(default_factory=dict)
    """Last record, of the same step in every arm: ``train/loss``, and the other metrics of our loop."""


def measure(workload: Workload, workers: int, names: Sequence[str], *, blocks: int, starts: int) -> dict[str, Arm]:
    """Measure a workload in several arms, each with some processes, which is started several times for a number of
    measured blocks."""
    measured = {name: Arm() for name in names}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        workload.make(folder)
        config = workload.training_config(folder, workers)
        (folder / "training.json").write_text(json.dumps(config))
        for _ in range(starts - 1):
            for name in names:
                with _Running(name, folder, workers, workload.block) as once:
                    measured[name].starts.append(once.start())
        running = {name: _Running(name, folder, workers, workload.block) for name in names}
        try:
            for name, each in running.items():
                measured[name].starts.append(each.start())
            _take_turns(running, measured, blocks)
        finally:
            for each in running.values():
                each.end()
    return measured


def _take_turns(running: dict[str, _Running], measured: dict[str, Arm], blocks: int) -> None:
    order = list(running)
    for turn in range(WARMUP_BLOCKS + blocks):
        for name in order:
            took, cpu = running[name].block()
            if turn >= WARMUP_BLOCKS:
                measured[name].blocks.append(took)
                measured[name].cpu.append(cpu)
        order.reverse()  # ABBA: a slow drift of the machine affects all alike
    for name, each in running.items():
        measured[name].peak_mib, measured[name].peak_gpu_mib = each.peak_mib, each.peak_gpu_mib
        measured[name].last = each.last()


def compare(one: Arm, other: Arm) -> tuple[float, float, float]:
    """Speed of one arm relative to another: median and quartiles of the ratios of neighbouring blocks."""
    ratios = [of_other / of_one for of_one, of_other in zip(one.blocks, other.blocks, strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return median, low, high


class _Running:
    """The processes of one arm."""

    def __init__(self, name: str, folder: Path, workers: int, block: int):
        self._name = name
        self._folder = folder
        self._workers = workers
        self._block = block
        self._processes: list[subprocess.Popen[bytes]] = []
        self._gates: list[Connection[str, Any]] = []
        self.peak_mib = self.peak_gpu_mib = self._cpu = 0.0
        self._output = folder / f"{name}.out"

    def __enter__(self) -> _Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> float:
        """Start the processes, and return the seconds to the end of the first step."""
        benchmarks = Path(__file__).resolve().parent.parent
        port = free_port()
        began = time.perf_counter()
        for rank in range(self._workers):
            own, other = Pipe()
            environment = os.environ | {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(self._workers),
                "LOCAL_WORLD_SIZE": str(self._workers),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",  # with more, processes would wait for each other's threads
                "PYTHONPATH": os.pathsep.join([str(benchmarks), *sys.path]),
                gate.PIPE: str(other.fileno()),
                gate.BLOCK: str(self._block),
            }
            output = self._output if rank == 0 else self._folder / f"{self._name}.{rank}.out"
            with other, output.open("wb") as stdout, output.with_suffix(".err").open("wb") as stderr:
                process = subprocess.Popen(
                    [sys.executable, "-m", "trained.arms", self._name, str(self._folder)],
                    env=environment,
                    stdout=stdout,
                    stderr=stderr,
                    pass_fds=[other.fileno()],
                )
            self._processes.append(process)
            self._gates.append(own)
        reached, self._cpu = self._reached()
        return reached - began

    def block(self) -> tuple[float, float]:
        """Run one block; return its seconds, and the processor seconds of its workers."""
        began, cpu_before = time.perf_counter(), self._cpu
        for each in self._gates:
            each.send("continue")
        reached, self._cpu = self._reached()
        return reached - began, self._cpu - cpu_before

    def _reached(self) -> tuple[float, float]:
        """Time at which the last worker has reached its gate, and processor seconds so far."""
        reached = cpu = 0.0
        for each in self._gates:
            try:
                at, spent, peak, gpu = each.recv()
            except EOFError:
                errors = "\n".join(file.read_text()[-3000:] for file in self._folder.glob(f"{self._name}*.err"))
                raise RuntimeError(f"{self._name} has ended:\n{errors}") from None
            reached, cpu = max(reached, at), cpu + spent
            self.peak_mib, self.peak_gpu_mib = max(self.peak_mib, peak), max(self.peak_gpu_mib, gpu)
        return reached, cpu

    def last(self) -> dict[str, float]:
        """Last record of rank 0."""
        lines = [line for line in self._output.read_text().splitlines() if "train/loss" in line]
        last: dict[str, float] = json.loads(lines[-1]) if lines else {}
        return last

    def end(self) -> None:
        for each in self._gates:
            with contextlib.suppress(OSError):  # the process may have ended
                each.send("end")
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._gates, self._processes = [], []
