"""Early end of a sweep by a person, an error, a failed disk or a spent budget: its trials save their state."""

from __future__ import annotations

from typing import Any, Literal

from sweeps.errors import ClusterLost, StorageFailed

EarlyEnd = Literal["interrupted", "stopped"]
"""Status of a sweep that was ended by a signal or by a request from another terminal."""
SIGNAL_FIRST_S = 1.5
"""Seconds to wait, once Ray is gone, for a signal that may have been sent to Ray and to this process at the same time:
during a call of Ray's, Python handles signals only once a second."""


class Shutdown:
    """State of a sweep's early end: whether the sweep ends early, and why."""

    def __init__(self, broker: Any):
        self._broker = broker
        self.status: EarlyEnd | None = None
        """Status with which the sweep ends, once a person has asked for the end or a disk has failed."""
        self.storage_failure: StorageFailed | None = None
        self.cluster_failure: ClusterLost | None = None
        """Error to raise after the search because Ray is gone; None if it is not, or a person had ended the sweep
        before."""
        self.has_cluster = True
        """False once Ray is gone."""
        self.driver_fails = False
        """Whether an error ends the driver."""
        self.budget_spent: str | None = None
        """Description of the budget that is used up."""
        self.failing: str | None = None
        """Description of the error with which one trial after another has failed at its start, in a sweep whose trials
        have trained before."""
        self._stops_as_others_fail = False

    def interrupts_trials(self) -> bool:
        """Whether trials that stop now will continue in another session."""
        return self.stops_trials() or self.failing is not None

    def stops_trials(self) -> bool:
        """Whether running trials were asked to stop; otherwise a trial that stops was pruned."""
        return self.driver_fails or any((self.status, self.budget_spent, self.failing and self._stops_as_others_fail))

    def begin(self, status: EarlyEnd) -> bool:
        """Ask all trials to save their state and stop; return False if they were asked before."""
        if self.status is not None:
            return False
        self.status = status
        self._broker.stop_all()
        return True

    def storage_has_failed(self, error: StorageFailed) -> None:
        """End the sweep because its results cannot be written; it can be resumed."""
        if self.storage_failure is None:
            self.storage_failure = error
            self.status = self.status or "interrupted"
            self._broker.stop_all()

    def cluster_is_lost(self, error: ClusterLost) -> None:
        """End the sweep because Ray is gone, and with it the trials' processes."""
        self.has_cluster = False
        if self.status is None:
            self.status, self.cluster_failure = "interrupted", error

    def trials_fail(self, reason: str, *, pauses: bool) -> None:
        """Start no further trials, because they fail at their start; the sweep can be resumed. Trials that run train to
        their end, unless the scheduler pauses trials, since it decides about no trial any more."""
        self.failing, self._stops_as_others_fail = reason, pauses
        if pauses:
            self._broker.stop_all()

    def budget_is_spent(self, reason: str) -> None:
        """Stop the trials that run, and start no further ones."""
        self.budget_spent = reason
        self._broker.stop_all()

    def budget_is_raised(self) -> None:
        """Let trials run again."""
        self.budget_spent = None
        self._broker.resume()
