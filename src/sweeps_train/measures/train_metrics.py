"""Metrics of training steps: loss, speed, and use of the machines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from sweeps_train.devices.device_operations import sum_type
from sweeps_train.devices.slow_workers import SlowWorkers, busy_parts
from sweeps_train.devices.system import MEMORY, memory_limit, system_metrics
from sweeps_train.measures.flops import FlopMeter, utilization
from sweeps_train.steps.step_clock import StepClock
from sweeps_train.tasks import Task
from sweeps_train.workers.communication import CommunicationMeter
from sweeps_train.workers.distributed import Workers
from sweeps_train.workers.exchange import Exchange

HALVINGS = "train/out_of_memory"
"""Metric: number of times that workers have halved their micro batches; absent if none has."""
DATA_WAIT = "train/data_wait_share"
"""Metric: part of the steps' time in which workers waited for their batches, from 0 to 1; mean over the workers."""
COMMUNICATION = "train/communication_share"
"""Metric: part of the measured steps in which workers communicated; absent if no step was measured."""
MOST_WORKERS_APART = 16
"""Maximum number of workers whose machine use is reported individually."""

Rows = Sequence[Mapping[str, float]]
"""Measurements by worker and name."""


class TrainMetrics:
    """Collects measurements of steps until ``take`` is called; time for evaluations and checkpoints does not count."""

    def __init__(
        self,
        workers: Workers,
        clock: StepClock,
        communication: CommunicationMeter,
        note: Callable[[str], None],
    ):
        self._workers, self._clock, self._communication = workers, clock, communication
        self._communicated = communication.measured
        """Measurements of communication up to the last call, or to the start of this training."""
        self._slow = SlowWorkers(workers, note)
        self._reset()

    def _reset(self) -> None:
        self._started: float | None = None
        self._loss = torch.zeros((), dtype=sum_type(self._workers.device), device=self._workers.device)
        """This worker's part of the summed loss, kept on the device so that no step waits for it."""
        self._units: int | torch.Tensor = 0
        self._size = 0
        self._data_wait = 0.0

    def start(self) -> None:
        """Start the clock, if it is not running."""
        if self._started is None:
            self._started = self._clock.now()

    def add_step(self, loss: torch.Tensor | None, units: int | torch.Tensor, size: int, data_wait: float) -> None:
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
        votes: Sequence[float],
        halvings: int,
        flops: FlopMeter,
        per_worker: bool,
    ) -> Exchange[tuple[dict[str, float], float, list[float]]]:
        """Reduce the measurements since the last call over all workers. Every worker must call it.

        Args:
            task: Names the unit of speed.
            votes: Numbers of this worker that are summed over all workers in the same exchange.
            halvings: Number of times that this worker has halved its micro batches.
            flops: Provides the FLOPs, from which utilisation is computed.
            per_worker: Include the memory that a worker may use, and each worker's use of its machine unless there are
                many.

        Returns:
            Metrics of all workers together; seconds since ``start``, the same on all workers; the sum of the votes.
        """
        assert self._started is not None
        system, shares = system_metrics(self._workers.device), self._communication.since(self._communicated)
        self._communicated = self._communication.measured
        limit = dict([memory_limit(self._workers.device)] if per_worker else [])
        loss = self._loss.item()  # waits for the device, and so comes before the time
        seconds = self._clock.now() - self._started
        own: dict[str, float] = {"loss": loss, "halved": halvings, "waited": self._data_wait, "seconds": seconds}
        own |= dict(zip(("flops", "peak"), flops.own(), strict=True)) | system | limit
        own |= dict(zip(("communicated", "cost"), shares, strict=True)) if shares else {}
        # One exchange for all: in a small model's training each costs a noticeable part of the steps between two logs.
        by_worker = yield [*votes, *own.values()]
        rows = [dict(zip(own, row[len(votes) :], strict=True)) for row in by_worker]
        seconds = max(row["seconds"] for row in rows)
        metrics = self._of_steps(task, rows, seconds)
        if shares:
            metrics |= self._of_communication(rows)
        apart = per_worker and 1 < len(rows) <= MOST_WORKERS_APART
        metrics |= _machine_metrics(rows, list(system), per_worker=apart)
        smallest = {name: min(row[name] for row in rows) for name in limit if not math.isnan(_sum(rows, name))}
        self._reset()
        return metrics | smallest, seconds, [sum(row[place] for row in by_worker) for place in range(len(votes))]

    def _of_steps(self, task: Task, rows: Rows, seconds: float) -> dict[str, float]:
        """Return the loss, speed and waits of the steps."""
        per_second = self._size / seconds
        metrics = {
            "train/loss": _sum(rows, "loss") / float(self._units) if self._units else math.nan,  # all steps left out
            f"train/{task.unit}_per_second": per_second,
            DATA_WAIT: _sum(rows, "waited") / len(rows) / seconds,
            **utilization(_sum(rows, "flops"), _sum(rows, "peak"), per_second),
        }
        halvings = _sum(rows, "halved")
        return metrics | ({HALVINGS: halvings} if halvings else {})

    def _of_communication(self, rows: Rows) -> dict[str, float]:
        """Return the share of communication; also find slow workers, and choose when to measure again."""
        self._communication.schedule_next(_sum(rows, "cost") / len(rows))
        share = _sum(rows, "communicated") / len(rows)
        if math.isnan(share):
            return {}
        waited = [row["waited"] / row["seconds"] for row in rows]
        self._slow.observe(busy_parts([row["communicated"] for row in rows], waited))
        return {COMMUNICATION: share}


def _sum(rows: Rows, name: str) -> float:
    return sum(row[name] for row in rows)


def _machine_metrics(rows: Rows, names: Sequence[str], *, per_worker: bool) -> dict[str, float]:
    """Return sums over all workers, the largest memory of any worker, and each worker's own values if requested. A
    metric for which a worker has no value (NaN) is left out."""
    metrics: dict[str, float] = {}
    for name in names:
        values = [row[name] for row in rows]
        if per_worker:
            metrics |= {name.replace("/", f"/worker_{rank}/"): value for rank, value in enumerate(values)}
        total = sum(values)
        metrics[name.replace("/", "/total_", 1) if name in MEMORY else name] = total
        if name in MEMORY and not math.isnan(total):
            metrics[name] = max(values)
    return {name: value for name, value in metrics.items() if not math.isnan(value)}
