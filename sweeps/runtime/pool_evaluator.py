"""Evaluations of a trial's checkpoints on the nodes of a pool, as Ray tasks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from sweeps.constants import EVALUATION_TIME
from sweeps.runtime.environment import hide_options_of_ray
from sweeps.runtime.shared_folder import SharedFolder

NAMED = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
"""Options of Ray's tasks by resource, for resources that have an option of their own."""
TRIES_ON_OTHER_NODES = 3


@dataclass(frozen=True)
class EvaluationPlace:
    """Resources and nodes of an evaluation."""

    resources: Mapping[str, float]
    """Resources that an evaluation reserves."""
    labels: Mapping[str, str]
    """Labels that a node for evaluations must have."""
    hourly: Mapping[str, float]
    """Cost per hour, by the metric that reports it."""


def _evaluate(folder: str, shared: SharedFolder | None) -> tuple[dict[str, float], float]:
    """Compute a checkpoint's metrics, and return them with the seconds that this took; runs on a node of the pool."""
    from sweeps_train.checkpoints.checkpoint_evaluation import evaluate_checkpoint  # imports torch

    hide_options_of_ray()
    if shared is not None:
        shared.check()
    began = time.monotonic()
    metrics = evaluate_checkpoint(Path(folder))
    return metrics, time.monotonic() - began


class PoolEvaluator:
    """Evaluates the checkpoints of one attempt at a trial; evaluations on a lost node are repeated on another one."""

    def __init__(
        self,
        place: EvaluationPlace,
        shared: SharedFolder | None,
        charge: Callable[[Mapping[str, float], float], None],
        alive: Callable[[], object],
        most_s: float,
    ):
        """
        Args:
            place: Resources and nodes of evaluations.
            shared: The sweep's folder, which the pool's nodes must see.
            charge: Receives the hourly cost and the seconds of each evaluation.
            alive: Gives a sign of life of a worker that waits for an evaluation.
            most_s: Seconds without a result after which such signs end, so that evaluations that never end count as
                hanging.
        """
        self._place, self._shared, self._charge = place, shared, charge
        self._alive, self._most_s = alive, most_s
        self._begun: deque[Any] = deque()
        self._ended_at = 0.0
        """Time of the last result, or of the beginning of evaluations."""

    def begin(self, checkpoint: Path) -> None:
        resources = self._place.resources
        options: dict[str, Any] = {"num_cpus": 0, **{NAMED[name]: resources[name] for name in NAMED.keys() & resources}}
        options["resources"] = {name: amount for name, amount in resources.items() if name not in NAMED}
        options["label_selector"] = dict(self._place.labels)
        # The workers' own placement group has no room for it.
        task: Any = ray.remote(_evaluate).options(
            **options, max_retries=TRIES_ON_OTHER_NODES, scheduling_strategy="DEFAULT"
        )
        if not self._begun:
            self._ended_at = time.monotonic()
        self._begun.append(task.remote(str(checkpoint), self._shared))

    def next_result(self, within_s: float) -> dict[str, float] | None:
        ready, _ = ray.wait([self._begun[0]], timeout=within_s)
        if not ready:
            if within_s and time.monotonic() - self._ended_at < self._most_s:
                self._alive()
            return None
        self._ended_at = time.monotonic()
        metrics, seconds = ray.get(self._begun.popleft())
        self._charge(self._place.hourly, seconds)
        return {**metrics, EVALUATION_TIME: seconds}

    def cancel(self) -> None:
        while self._begun:
            ray.cancel(self._begun.popleft(), force=True)
