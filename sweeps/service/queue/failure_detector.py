"""Machines that are lost for good, as seen from another one: nothing there gives a sign of life any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from sweeps.constants import TAG_HEARTBEAT
from sweeps.folder import last_heartbeat
from sweeps.service.clock import Clock
from sweeps.service.queue.heartbeat import last_beat
from sweeps.service.queue.jobs import Job
from sweeps.tracking.record import SweepRecord

Sign = tuple[float | None, str | None, str | None]
"""Of the machine's services in the database, of the driver in its folder, and of the driver in MLflow."""


LEAST_LOOKS = 3
"""That have all seen the same: a clock that is put forward makes no machine lost, since a driver that lives changes its
sign in less time than lies between two looks."""


@dataclass
class _Seen:
    sign: Sign
    since: float
    looks: int = 1


class FailureDetector:
    """Looks whether anything changes, by this machine's clock alone: clocks of machines differ."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        record: Callable[[Job], SweepRecord | None],
        *,
        output_dir: Path,
        lost_after_s: float,
    ) -> None:
        """
        Args:
            engine: The service's database.
            clock: What time it is.
            record: Reads a job's sweep from MLflow; None if it has not begun.
            output_dir: Of the sweeps; other machines may write to it, too.
            lost_after_s: Seconds without a sign of life after which a machine is lost.
        """
        self._engine, self._clock, self._record = engine, clock, record
        self._output_dir, self._lost_after_s = output_dir, lost_after_s
        self._seen: dict[int, _Seen] = {}

    @property
    def every_s(self) -> float:
        """Seconds between two looks at the same job."""
        return self._lost_after_s / 20

    def is_lost(self, job: Job) -> bool:
        """Whether a job's machine has given no sign of life for so long, as far as this service has looked.

        Raises:
            TrackingUnreachable: MLflow is away: for drivers, too, perhaps, so that it is counted anew.
        """
        try:
            sign = self._sign(job)
        except Exception:
            self._seen.pop(job.id, None)
            raise
        now, seen = self._clock.now(), self._seen.get(job.id)
        if seen is None or seen.sign != sign:
            self._seen[job.id] = _Seen(sign, now)
            return False
        seen.looks += 1
        return seen.looks >= LEAST_LOOKS and now - seen.since >= self._lost_after_s

    def _sign(self, job: Job) -> Sign:
        with self._engine.connect() as connection:
            beat = last_beat(connection, job.host or "")
        record = self._record(job)
        tag = None if record is None else record.tags.get(TAG_HEARTBEAT)
        return beat, last_heartbeat(self._output_dir / job.sweep), tag
