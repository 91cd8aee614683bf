"""A worker that is slower than the others is named."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from training_runs import IMAGES, configured, on_two_workers, run

from sweeps_train.devices.slow_workers import SUCCESSIVE, SlowWorkers
from sweeps_train.workers.distributed import Workers


class Sleeps(nn.Module):
    """Rank 1 sleeps in every step."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training and dist.get_rank() == 1:
            time.sleep(0.1)
        logits: torch.Tensor = self.layer(images.flatten(1))
        return logits


def train_with_a_sleeper() -> list[str]:
    model = {"kind": "custom", "_target_": f"{__name__}.Sleeps"}
    steps = {"max_steps": 12, "eval_every": 12, "log_every": 1, "communication_every": 2}
    base: dict[str, Any] = {**IMAGES, "model": model}
    return run(configured(base, train=steps)).notes


def test_a_gloo_worker_that_sleeps_is_named_once(tmp_path: Path) -> None:
    notes, of_others = on_two_workers(train_with_a_sleeper, tmp_path)
    assert of_others == []
    (slow,) = [note for note in notes if "is slow" in note]
    assert slow.startswith(f"worker 1 on {socket.gethostname()} is slow: its part of a step takes ")


class Alone(Workers):
    """Rank 0 of four workers."""

    def gather(self, value: Any) -> list[Any]:
        return [f"{value}-{rank}" for rank in range(4)]


def test_a_worker_must_be_slow_several_times_in_succession() -> None:
    notes: list[str] = []
    slow = SlowWorkers(Alone(0, 4, torch.device("cpu")), notes.append)
    usual, with_a_slow_one = [0.5, 0.5, 0.4, 0.6], [0.3, 0.3, 0.9, 0.3]
    for measured in [*[with_a_slow_one] * (SUCCESSIVE - 1), usual, *[with_a_slow_one] * (SUCCESSIVE - 1)]:
        slow.observe(measured)
    assert notes == []
    for _ in range(5):
        slow.observe(with_a_slow_one)
    (note,) = notes
    assert note.startswith(f"worker 2 on {socket.gethostname()}-2 is slow: its part of a step takes 3.0 times as long")
