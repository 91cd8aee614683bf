"""A sweep whose broker loses its process again and again."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from running import Done, ended, start

NET = """
import time
import torch

class Net(torch.nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(dropout), torch.nn.Linear(64, 10))

    def forward(self, images):
        if self.training:
            time.sleep(0.05)
        return self.layers(images)
"""
SLOW_NET = ("space=none", "model=custom", "model._target_=nets.Net", "model.arguments.dropout=interval(0, 0.3)")


def reports(folder: Path, sweep: str) -> int:
    """Number of lines that all trials' workers have written into their report logs."""
    logs = (folder / "outputs" / sweep / "trials").glob("*/reports.jsonl")
    return sum(path.read_bytes().count(b"\n") for path in logs)


def broker_of(driver: int) -> psutil.Process | None:
    """The process of the broker that a driver has started, if it is there."""
    for each in psutil.Process(driver).children(recursive=True):
        try:
            if any("BrokerActor" in part for part in each.cmdline()[:1]):
                return each
        except psutil.Error:
            continue
    return None


def run_and_kill_broker(folder: Path, *arguments: str, moments: Sequence[int]) -> tuple[Done, int]:
    """Run a sweep, and kill the broker's process as soon as the workers have written so many lines.

    Returns:
        The sweep, and how often the broker was killed.
    """
    (folder / "nets.py").write_text(NET, encoding="utf-8")
    process = start(folder, "run", *arguments, "--name=often", "tracking.report=false")
    killed = 0
    for moment in moments:
        while process.poll() is None and reports(folder, "often") < moment:
            time.sleep(0.01)
        while process.poll() is None and (broker := broker_of(process.pid)) is None:
            time.sleep(0.05)
        if process.poll() is None and broker is not None:
            broker.send_signal(signal.SIGKILL)
            killed += 1
    err = ended(folder, process, within_s=400).err
    return Done(folder, 0, err, Done.of(folder, "often").document), killed
