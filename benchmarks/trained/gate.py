"""A gate at which a training waits for its turn, after every so many optimizer steps."""

from __future__ import annotations

import os
import re
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

PIPE, BLOCK = "BENCHMARK_PIPE", "BENCHMARK_BLOCK"
"""Environment variables: file descriptor of the pipe to the measuring process, and steps between two gates."""


class Gate:
    """Counts the steps of the only optimizer of this process, in any loop."""

    def __init__(self, connection: Connection[Any, str], block: int):
        self._connection = connection
        self._block = block
        self._steps = 0

    def __call__(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._steps += 1
        if (self._steps - 1) % self._block:
            return
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._connection.send((time.perf_counter(), time.process_time(), *peaks()))
        if self._connection.recv() == "end":
            os._exit(0)


def install() -> None:
    """Make this process wait after the first step, and then after every block."""
    connection: Connection[Any, str] = Connection(int(os.environ[PIPE]))
    register_optimizer_step_post_hook(Gate(connection, int(os.environ[BLOCK])))


def peaks() -> tuple[float, float]:
    """Peak memory so far in MiB: of this process, and of its GPU."""
    # Not getrusage, whose peak includes that of the process that this one was forked from.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    kib = re.search(r"VmHWM:\s+(\d+)", status)
    assert kib is not None
    gpu = torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else 0.0
    return int(kib[1]) / 1024, gpu
