"""Training since the last record: its loss, its speed, and what it takes of the machines."""

from __future__ import annotations

import math
import time

import torch

from sweeps_train.communication import CommunicationMeter
from sweeps_train.distributed import Workers
from sweeps_train.flops import FlopMeter
from sweeps_train.system import system_metrics
from sweeps_train.tasks import Task

HALVINGS = "train/out_of_memory"
"""Metric of those records before which a worker's micro batches have been halved: how many times."""
MOST_WORKERS_APART = 16
"""Of more, nobody would read each one's metrics."""


class Window:
    """Without the time of evaluations and checkpoints."""

    def __init__(self, workers: Workers):
        self._workers = workers
        self._began = time.perf_counter()
        self.loss = torch.zeros((), dtype=torch.float64, device=workers.device)
        """This worker's part of the summed loss; left on the device, which is not waited for."""
        self.units = 0
        """Of all workers."""
        self.size = 0
        """Of all workers."""
        self.halvings = 0
        """This worker's, of its micro batches."""

    def close(
        self, task: Task, vote: float, communication: CommunicationMeter, flops: FlopMeter, *, apart: bool
    ) -> tuple[dict[str, float], float, float]:
        """Every worker must call it.

        Args:
            task: Names the speed.
            vote: This worker's.
            communication: What it has measured, if anything, is taken.
            flops: Knows how much there was to compute.
            apart: Each worker's use of its machine, too.

        Returns:
            Metrics of all workers together; the seconds; the sum of the votes.
        """
        system, shares = system_metrics(self._workers.device), communication.take()
        number, rank = self._workers.size, self._workers.rank
        places = number if apart and 1 < number <= MOST_WORKERS_APART else 0
        of_each = [value if place == rank else 0.0 for place in range(places) for value in system.values()]
        own = [self.loss.item(), vote, self.halvings, *shares, *system.values(), *of_each]
        loss, votes, halvings, *others = self._workers.sum(own)
        seconds = time.perf_counter() - self._began
        per_second = self.size / seconds
        metrics = {"train/loss": loss / self.units, f"train/{task.unit}_per_second": per_second}
        metrics |= flops.metrics(per_second)
        if halvings:
            metrics[HALVINGS] = halvings
        if shares:
            metrics["train/communication_share"] = others.pop(0) / number
            communication.space(others.pop(0) / number)
        apart_names = [name.replace("/", f"/worker_{place}/") for place in range(places) for name in system]
        of_machines = zip([*system, *apart_names], others, strict=True)
        metrics |= {name: value for name, value in of_machines if not math.isnan(value)}  # some worker cannot say it
        return metrics, seconds, votes
