"""Detects failed machines: a machine without any heartbeat of its services or drivers counts as lost."""

from __future__ import annotations

from collections.abc import Callable

from sweeps.constants import TAG_HEARTBEAT
from sweeps.folders.driver_lock import last_heartbeat
from sweeps.service.queue.heartbeat import last_beat
from sweeps.service.queue.jobs import Job
from sweeps.service.service_context import ServiceContext
from sweeps.tracking.record import SweepRecord

MIN_OBSERVATIONS = 3
"""Number of successive equal observations before a process counts as dead. A living one changes its heartbeat between
two of them; elapsed time alone does not suffice, since this machine may have been suspended."""


class Silence:
    """Time for which heartbeats have not changed, by this machine's steady clock, since the clocks of machines
    differ."""

    def __init__(self) -> None:
        self._heartbeat: object = None
        self._since, self._count = 0.0, 0

    def begin(self, now: float) -> None:
        """Begin to wait for the first heartbeat of a new process; the previous process's may still be observed."""
        self._since, self._count = now, 0

    def lasts(self, heartbeat: object, now: float, seconds: float) -> bool:
        """Whether a heartbeat observed now has not changed for so many seconds; None means that there is no
        heartbeat."""
        if heartbeat is None or heartbeat != self._heartbeat:
            self._heartbeat = heartbeat
            self.begin(now)
        self._count += 1
        return self._count >= MIN_OBSERVATIONS and now - self._since >= seconds


class FailureDetector:
    """Detects machines whose heartbeats no longer change."""

    def __init__(self, service: ServiceContext, record: Callable[[Job], SweepRecord | None]) -> None:
        """Make a detector; ``record`` reads the record of a job's sweep from MLflow, None if it has not begun."""
        self._engine, self._clock, self._record = service.database, service.clock, record
        self._output_dir, self._lost_after_s = service.config.folder, service.config.queue.lost_after_s
        self._silences: dict[int, Silence] = {}

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
            self._silences.pop(job.id, None)
            raise
        silence = self._silences.setdefault(job.id, Silence())
        return silence.lasts(heartbeats, self._clock.steady(), self._lost_after_s)

    def _heartbeats(self, job: Job) -> tuple[float | None, str | None, str | None]:
        """Return the last heartbeats: of the machine's services (from the database), and of the driver (from its
        folder, and from MLflow)."""
        with self._engine.connect() as connection:
            beat = last_beat(connection, job.host or "")
        record = self._record(job)
        tag = None if record is None else record.tags.get(TAG_HEARTBEAT)
        return beat, last_heartbeat(self._output_dir / job.sweep), tag
