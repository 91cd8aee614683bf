"""Detects failed machines: a machine without any heartbeat of its services or drivers counts as lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sweeps.constants import TAG_HEARTBEAT
from sweeps.folders.driver_lock import last_heartbeat
from sweeps.service.queue.heartbeat import last_beat
from sweeps.service.queue.jobs import Job
from sweeps.service.surroundings import Surroundings
from sweeps.tracking.record import SweepRecord

Heartbeats = tuple[float | None, str | None, str | None]
"""Last heartbeats: of the machine's services (from the database), and of the driver (from its folder, and from
MLflow)."""

MIN_OBSERVATIONS = 3
"""Minimum number of successive equal observations for a failed machine. A living driver changes its heartbeat between
two of them; elapsed time alone does not suffice, since this machine may have been suspended."""


@dataclass
class _Observation:
    heartbeats: Heartbeats
    since: float
    count: int = 1


class FailureDetector:
    """Detects machines whose heartbeats no longer change. Only this machine's steady clock is used, since the clocks of
    machines differ."""

    def __init__(self, service: Surroundings, record: Callable[[Job], SweepRecord | None]) -> None:
        """
        Args:
            service: The service, whose folder of sweeps other machines may share.
            record: Reads the record of a job's sweep from MLflow; None if it has not begun.
        """
        self._engine, self._clock, self._record = service.database, service.clock, record
        self._output_dir, self._lost_after_s = service.config.folder, service.config.queue.lost_after_s
        self._observed: dict[int, _Observation] = {}

    @property
    def every_s(self) -> float:
        """Seconds between two observations of the same job."""
        return self._lost_after_s / 20

    def has_failed(self, job: Job) -> bool:
        """Whether a job's machine has sent no heartbeat for too long, as observed by this service.

        Raises:
            TrackingUnreachable: MLflow does not answer, so drivers may not be able to send heartbeats either; the
                observation starts again.
        """
        try:
            heartbeats = self._heartbeats(job)
        except Exception:
            self._observed.pop(job.id, None)
            raise
        now, observed = self._clock.steady(), self._observed.get(job.id)
        if observed is None or observed.heartbeats != heartbeats:
            self._observed[job.id] = _Observation(heartbeats, now)
            return False
        observed.count += 1
        return observed.count >= MIN_OBSERVATIONS and now - observed.since >= self._lost_after_s

    def _heartbeats(self, job: Job) -> Heartbeats:
        with self._engine.connect() as connection:
            beat = last_beat(connection, job.host or "")
        record = self._record(job)
        tag = None if record is None else record.tags.get(TAG_HEARTBEAT)
        return beat, last_heartbeat(self._output_dir / job.sweep), tag
