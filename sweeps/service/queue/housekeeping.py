"""Removes what is older than it is configured to be kept: jobs, services that have ended, logs of jobs."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Select, delete, func, select, update

from sweeps.config.service import Queue
from sweeps.errors import SweepsError
from sweeps.service import subprocesses
from sweeps.service.clock import Clock
from sweeps.service.database import tables
from sweeps.service.database.engine import writing
from sweeps.service.poller import Poller
from sweeps.service.queue import jobs

DAY_S = 86400.0
EVERY_S = DAY_S
KEEP_SERVICES_S = 30 * DAY_S
"""Seconds after its last sign of life for which a service is remembered, at least."""
AT_ONCE = 500
"""Rows that are removed in one transaction, for which others wait."""

logger = logging.getLogger(__name__)


class Housekeeping:
    """Looks once a day, on a thread of its own."""

    def __init__(self, engine: Engine, clock: Clock, queue: Queue, *, output_dir: Path, tracking_uri: str) -> None:
        """
        Args:
            engine: The service's database.
            clock: What time it is.
            queue: How long what is kept.
            output_dir: Of the sweeps.
            tracking_uri: Of the store, which says what sweeps there are.
        """
        self._engine, self._clock, self._queue = engine, clock, queue
        self._output_dir, self._uri = output_dir, tracking_uri
        self._poller = Poller("housekeeping", clock, self.step, EVERY_S)

    def start(self) -> None:
        """Begin."""
        self._poller.start()

    def stop(self) -> None:
        """End."""
        self._poller.stop(10.0)

    def step(self) -> None:
        """Remove what is too old now."""
        with self._engine.connect() as connection:
            now = min(self._clock.now(), _newest(connection))  # a clock that is ahead makes nothing old
        before = now - self._queue.keep_jobs_days * DAY_S
        forgotten = forget_jobs(self._engine, before, self._recorded(before))
        forget_services(self._engine, now - max(KEEP_SERVICES_S, 2 * self._queue.lost_after_s))
        removed = remove_logs(self._output_dir, now - self._queue.keep_logs_days * DAY_S)
        if forgotten or removed:
            logger.info(
                "%d jobs of more than %d days ago, and logs of %d of more than %d days ago, are removed",
                *(forgotten, self._queue.keep_jobs_days, removed, self._queue.keep_logs_days),
            )

    def _recorded(self, before: float) -> Collection[str] | None:
        """Names of the sweeps in the store; None if it does not say, or is not needed. A store without any is rather
        the wrong one, such as that of another folder, than one from which all were removed."""
        from sweeps.tracking.reader import list_sweeps

        with self._engine.connect() as connection:
            if connection.execute(_old(before).limit(1)).first() is None:
                return None
        try:
            return {each.sweep for each in list_sweeps(self._uri)} or None
        except SweepsError:
            return None


def forget_jobs(engine: Engine, before: float, recorded: Collection[str] | None) -> int:
    """Forget jobs that ended before a time; returns how many. A job that made a sweep stays as long as the sweep is in
    the store: it says whose the sweep is.

    Args:
        engine: The service's database.
        before: The time.
        recorded: Names of the sweeps in the store; None if that is not known, and all jobs that made one stay.
    """
    with engine.connect() as connection:
        found = connection.execute(_old(before)).all()
    old = [number for number, makes in found if makes is None or (recorded is not None and makes not in recorded)]
    firings = tables.firings
    for start in range(0, len(old), AT_ONCE):
        numbers = old[start : start + AT_ONCE]
        with writing(engine) as connection:
            connection.execute(update(firings).where(firings.c.job.in_(numbers)).values(job=None))
            connection.execute(delete(tables.jobs).where(tables.jobs.c.id.in_(numbers)))
    return len(old)


def forget_services(engine: Engine, before: float) -> None:
    """Forget services that were last heard of before a time, but not those whose jobs run on."""
    services, held = tables.services, tables.jobs
    with writing(engine) as connection:
        running = select(held.c.service).where(held.c.state == jobs.RUNNING, held.c.service.is_not(None))
        connection.execute(
            delete(services).where(services.c.beat < before, services.c.started < before, services.c.id.not_in(running))
        )


def remove_logs(output_dir: Path, before: float) -> int:
    """Remove the folders of processes in the background that have ended before a time; returns how many. The log of a
    sweep that there is stays in the sweep's own folder."""
    removed = 0
    for folder in subprocesses.control_folder(output_dir, "").glob("job-*"):
        try:
            last = max(each.stat().st_mtime for each in (folder, *folder.iterdir()))
        except OSError:  # somebody else removes it
            continue
        if last < before and not subprocesses.is_running(folder):
            shutil.rmtree(folder, ignore_errors=True)
            removed += 1
    return removed


def _newest(connection: Connection) -> float:
    """When the newest job was submitted."""
    table = tables.jobs
    last = select(func.max(table.c.id)).scalar_subquery()
    found: float | None = connection.execute(select(table.c.submitted).where(table.c.id == last)).scalar_one_or_none()
    return found or 0.0


def _old(before: float) -> Select[Any]:
    table = tables.jobs
    return select(table.c.id, table.c.makes).where(table.c.ended < before, table.c.state.in_(jobs.ENDED))
