"""Metrics of training steps: loss, speed, and use of the machines."""

from __future__ import annotations

import math
import time

import torch

from sweeps_train.communication import CommunicationMeter
from sweeps_train.device import sum_type
from sweeps_train.distributed import Workers
from sweeps_train.flops import FlopMeter
from sweeps_train.system import MEMORY, memory_limit, system_metrics, total_name
from sweeps_train.tasks import Task

HALVINGS = "train/out_of_memory"
"""Metric: how many times workers have halved their micro batches; absent where none has."""
DATA_WAIT = "train/data_wait_share"
"""Metric: part of the steps' time in which workers waited for their batches, from 0 to 1; mean over the workers."""
COMMUNICATION = "train/communication_share"
"""Metric: part of the measured steps in which workers communicated; absent where none was measured."""
MOST_WORKERS_APART = 16
"""Largest number of workers whose use of their machines is reported one by one."""


class TrainMetrics:
    """Collects measurements of steps until they are taken; evaluations and checkpoints are left out of the time."""

    def __init__(self, workers: Workers):
        self._workers = workers
        self._reset()

    def _reset(self) -> None:
        self._started: float | None = None
        self._loss = torch.zeros((), dtype=sum_type(self._workers.device), device=self._workers.device)
        """This worker's part of the summed loss, left on the device so that nothing waits for it."""
        self._units = self._size = 0
        self._data_wait = 0.0

    def start(self) -> None:
        """Start the clock, if it is not running."""
        if self._started is None:
            self._started = time.perf_counter()

    def add_step(self, loss: torch.Tensor | None, units: int, size: int, data_wait: float) -> None:
        """Add the measurements of one step.

        Args:
            loss: This worker's part of the summed loss, a scalar; None if another worker reports it.
            units: Terms of the loss, of all workers.
            size: Tokens or samples that all workers have processed.
            data_wait: Seconds that this worker waited for its batches.
        """
        self._data_wait += data_wait
        if loss is not None:
            self._loss += loss
        self._units += units
        self._size += size

    def take(
        self,
        task: Task,
        vote: float,
        halvings: int,
        communication: CommunicationMeter,
        flops: FlopMeter,
        per_worker: bool,
    ) -> tuple[dict[str, float], float, float]:
        """Reduce the measurements over all workers, and begin anew. Every worker must call it.

        Args:
            task: Names the unit of speed.
            vote: A number of this worker that is summed along.
            halvings: How often this worker has halved its micro batches.
            communication: Its measurements are taken, if there are any.
            flops: Computes the utilisation from the speed.
            per_worker: Include the memory that a worker may use, and each worker's use of its machine unless there are
                many.

        Returns:
            Metrics of all workers together; seconds since ``start``; the sum of the votes.
        """
        assert self._started is not None
        system, shares = system_metrics(self._workers.device), communication.take()
        number, rank = self._workers.size, self._workers.rank
        ranks = range(number if per_worker and 1 < number <= MOST_WORKERS_APART else 0)
        of_each = [value if each == rank else 0.0 for each in ranks for value in system.values()]
        own = [self._loss.item(), vote, halvings, self._data_wait, *shares, *system.values(), *of_each]
        loss, votes, all_halvings, data_wait, *others = self._workers.sum(own)
        seconds = time.perf_counter() - self._started
        per_second = self._size / seconds
        metrics = {"train/loss": loss / self._units, f"train/{task.unit}_per_second": per_second}
        metrics[DATA_WAIT] = data_wait / number / seconds
        metrics |= flops.metrics(per_second)
        if all_halvings:
            metrics[HALVINGS] = all_halvings
        if shares:
            metrics[COMMUNICATION] = others.pop(0) / number
            communication.schedule_next(others.pop(0) / number)
        names = [total_name(name) if name in MEMORY else name for name in system]
        names += [name.replace("/", f"/worker_{each}/") for each in ranks for name in system]
        measured = zip(names, others, strict=True)
        metrics |= {name: value for name, value in measured if not math.isnan(value)}  # NaN: some worker has no value
        memory = [name for name in system if name in MEMORY]
        metrics |= zip(memory, self._workers.max([system[name] for name in memory]), strict=True)
        if per_worker:
            name, limit = memory_limit(self._workers.device)
            metrics[name] = -self._workers.max([-limit])[0]  # the smallest of any worker
        self._reset()
        return metrics, seconds, votes
