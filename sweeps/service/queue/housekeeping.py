"""Housekeeping: removes jobs, ended services and logs that are older than configured."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Select, delete, func, select, update

from sweeps.errors import SweepsError
from sweeps.service import subprocesses
from sweeps.service.database import tables
from sweeps.service.database.engine import writing
from sweeps.service.nights.command_lines import LOCKS
from sweeps.service.poller import Poller
from sweeps.service.queue import jobs
from sweeps.service.service_context import ServiceContext

DAY_S = 86400.0
INTERVAL_S = DAY_S
KEEP_S = 30 * DAY_S
"""Minimum seconds for which a service is kept after its last heartbeat, and a message."""
BATCH = 500
"""Maximum number of rows removed in one transaction; other writers wait for it."""

logger = logging.getLogger(__name__)


class Housekeeping(Poller):
    """Removes old rows and logs once a day, on its own thread."""

    def __init__(self, service: ServiceContext) -> None:
        super().__init__("housekeeping", service.clock, self.step, INTERVAL_S, stop_within_s=10.0)
        self._engine, self._clock, self._queue = service.database, service.clock, service.config.queue
        self._output_dir, self._uri = service.config.folder, service.config.tracking_uri

    def step(self) -> None:
        """Remove everything that is now too old."""
        with self._engine.connect() as connection:
            now = min(self._clock.now(), _newest(connection))  # a clock that is ahead must not make jobs old
        cutoff = now - self._queue.keep_jobs_days * DAY_S
        forgotten = forget_jobs(self._engine, cutoff, self._recorded(cutoff))
        forget_services(self._engine, now - max(KEEP_S, 2 * self._queue.lost_after_s))
        forget_messages(self._engine, min(cutoff, now - KEEP_S))
        removed = remove_logs(self._output_dir, now - self._queue.keep_logs_days * DAY_S)
        if forgotten or removed:
            logger.info(
                "removed %d jobs older than %d days, and logs of %d jobs older than %d days",
                *(forgotten, self._queue.keep_jobs_days, removed, self._queue.keep_logs_days),
            )

    def _recorded(self, before: float) -> Collection[str] | None:
        """Return the names of the sweeps in the tracking store; None if they are unknown or not needed. An empty store
        is treated as unknown, since it is more likely the wrong store than one from which every sweep was removed."""
        from sweeps.tracking.reader import list_sweeps

        with self._engine.connect() as connection:
            if connection.execute(_old(before).limit(1)).first() is None:
                return None
        try:
            return {each.sweep for each in list_sweeps(self._uri)} or None
        except SweepsError:
            return None


def forget_jobs(engine: Engine, before: float, recorded: Collection[str] | None) -> int:
    """Remove jobs that ended before a time, and return their number. A job that made a sweep is kept while the sweep is
    in the tracking store, or while it is unknown which sweeps are (``recorded`` is None), since the job identifies the
    sweep's owner."""
    with engine.connect() as connection:
        found = connection.execute(_old(before)).all()
    old = [number for number, makes in found if makes is None or (recorded is not None and makes not in recorded)]
    firings = tables.firings
    for start in range(0, len(old), BATCH):
        numbers = old[start : start + BATCH]
        with writing(engine) as connection:
            connection.execute(update(firings).where(firings.c.job.in_(numbers)).values(job=None))
            connection.execute(delete(tables.jobs).where(tables.jobs.c.id.in_(numbers)))
    return len(old)


def forget_services(engine: Engine, before: float) -> None:
    """Remove services whose last heartbeat is before a time and that have no running job."""
    services, held = tables.services, tables.jobs
    with writing(engine) as connection:
        running = select(held.c.service).where(held.c.state == jobs.RUNNING, held.c.service.is_not(None))
        connection.execute(
            delete(services).where(services.c.beat < before, services.c.started < before, services.c.id.not_in(running))
        )


def forget_messages(engine: Engine, before: float) -> None:
    """Remove messages that were made before a time; one that still waits then is for a channel that was removed."""
    with writing(engine) as connection:
        connection.execute(delete(tables.deliveries).where(tables.deliveries.c.created < before))


def remove_logs(output_dir: Path, before: float) -> int:
    """Remove the control folders of jobs that ended before a time, and return their number; also locks of nights, if
    as old. The log of an existing sweep is kept in the sweep's own folder."""
    removed = 0
    for lock in (output_dir / LOCKS).glob("*"):  # nobody holds one for as long as logs are kept
        with contextlib.suppress(OSError):
            if lock.stat().st_mtime < before:
                lock.unlink()
    for folder in subprocesses.control_folder(output_dir, "").glob("job-*"):
        try:
            last = max(each.stat().st_mtime for each in (folder, *folder.iterdir()))
        except OSError:  # removed by another process
            continue
        if last < before and not subprocesses.is_running(folder):
            shutil.rmtree(folder, ignore_errors=True)
            removed += 1
    return removed


def _newest(connection: Connection) -> float:
    """Return the submission time of the newest job."""
    table = tables.jobs
    last = select(func.max(table.c.id)).scalar_subquery()
    found: float | None = connection.execute(select(table.c.submitted).where(table.c.id == last)).scalar_one_or_none()
    return found or 0.0


def _old(before: float) -> Select[Any]:
    table = tables.jobs
    return select(table.c.id, table.c.makes).where(table.c.ended < before, table.c.state.in_(jobs.ENDED))
