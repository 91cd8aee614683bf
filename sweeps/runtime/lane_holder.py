"""Access of a trial's actor to its lane in a worker group that the broker owns."""

from __future__ import annotations

import contextlib

import ray

from sweeps.runtime.broker_sides import TrialSide
from sweeps.runtime.trial_assignment import Assignment
from sweeps.runtime.worker_group import RELEASE_TIMEOUT_S
from sweeps.runtime.worker_group_spec import WorkerGroupSpec


class LaneHolder:
    """Lane that an actor's trial occupies or waits for."""

    def __init__(self, broker: TrialSide):
        self._broker = broker
        self._attempt: tuple[str, int] | None = None

    def release(self, spec: WorkerGroupSpec, *, reuse: bool) -> None:
        """Let the trial leave its lane; the workers stay."""
        self.close()

    def assign(self, assignment: Assignment, spec: WorkerGroupSpec) -> None:
        """Give a trial to a lane."""
        self._attempt = assignment.trial, assignment.attempt
        self._broker.assign_lane(assignment, spec)

    def close(self) -> None:
        """Let the trial leave its lane."""
        if self._attempt is not None:
            with contextlib.suppress(ray.exceptions.RayError):
                self._broker.leave_lane(*self._attempt, RELEASE_TIMEOUT_S)
            self._attempt = None
