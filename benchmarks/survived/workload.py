"""The training of both arms: a small model whose steps take a fixed time, and a trace of each worker's steps."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

WORKERS_PER_TRIAL = 2
PLACES = 2
"""Trials at a time."""
BATCH = 16


class Slow(nn.Module):
    """A linear model that sleeps in every training step, and leaves a trace of it."""

    def __init__(self, step_s: float, traces: str):
        """Take ``step_s`` for a step, and write a trace for each process."""
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        self._step_s, self._file = step_s, Path(traces)
        self._first, self._steps = 0.0, 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training:
            time.sleep(self._step_s)
            self._steps += 1
            self._first = self._first or time.time()
            name = f"{os.getpid()}-{self._first}"
            # One write, which a kill does not tear.
            (self._file / name).write_text(f"{os.getpid()} {self._first} {time.time()} {self._steps}")
        logits: torch.Tensor = self.layers(images)
        return logits


def samples(number: int) -> tuple[TensorDataset, TensorDataset]:
    """Training and held-out data, the same on all workers."""
    generator = torch.Generator().manual_seed(0)
    training, held_out = (
        TensorDataset(torch.rand(size, 64, generator=generator), torch.arange(size) % 10) for size in (number, 64)
    )
    return training, held_out


@dataclass(frozen=True)
class Trace:
    """Steps of one worker in one attempt."""

    process: int
    first: float
    """Unix time of its first step."""
    last: float
    steps: int


def read_traces(folder: Path) -> list[Trace]:
    """Traces of all workers so far."""
    texts = [file.read_text(encoding="utf-8").split() for file in folder.iterdir()]
    return [Trace(int(each[0]), float(each[1]), float(each[2]), int(each[3])) for each in texts if len(each) == 4]
