"""Slot of a trial's actor: its worker group is kept for the next trial, if it can train it."""

from __future__ import annotations

from sweeps.runtime.broker_sides import TrialSide
from sweeps.runtime.trial_assignment import Assignment
from sweeps.runtime.worker_group import Slot
from sweeps.runtime.worker_group_spec import WorkerGroupSpec


class SlotHolder:
    """The slot of a trial's actor: kept for the next trial while its workers are healthy, and rebuilt otherwise."""

    def __init__(self, broker: TrialSide):
        self._broker = broker
        self._slot: Slot | None = None

    def release(self, spec: WorkerGroupSpec, *, reuse: bool) -> None:
        """End the slot's trial, and keep the slot if it can take another one; otherwise free its workers.

        Args:
            spec: Workers of the next trial.
            reuse: Whether slots outlive trials.
        """
        if self._slot is not None and not (reuse and self._slot.spec == spec and self._slot.release(spec)):
            self.close()

    def assign(self, assignment: Assignment, spec: WorkerGroupSpec) -> None:
        """Give a trial to the slot that was kept, or to a new one."""
        if self._slot is None:
            self._slot = Slot(f"slot-{assignment.trial}-{assignment.attempt}", spec, self._broker)
        self._slot.assign(assignment)

    def close(self) -> None:
        """Free the workers."""
        if self._slot is not None:
            self._slot.close()
            self._slot = None
