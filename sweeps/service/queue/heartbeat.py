"""Heartbeat of this service process in the database, by which other services know that it is alive."""

from __future__ import annotations

import os
import socket
import uuid

from sqlalchemy import Connection, Engine, func, insert, select, update

from sweeps.service.clock import Clock
from sweeps.service.database import tables
from sweeps.service.database.engine import check_writable, writing
from sweeps.service.database.storage_errors import is_unavailable, outage

SHARE = 0.2
"""Interval between two heartbeats, as a share of the time after which a service counts as dead."""

CHECK_EVERY_S = 1.0
"""Seconds between two attempts to write during a storage outage."""


def is_served(connection: Connection, silent_since: float) -> bool:
    """Whether any service has sent a heartbeat since the given time."""
    services = tables.services
    return connection.execute(select(services.c.id).where(services.c.beat >= silent_since).limit(1)).first() is not None


def last_beat(connection: Connection, host: str) -> float | None:
    """Return the time of the newest heartbeat of any service on a host, by the host's clock; None if no service has run
    there."""
    services = tables.services
    beat: float | None = connection.execute(
        select(func.max(services.c.beat)).where(services.c.host == host)
    ).scalar_one()
    return beat


class Heartbeat:
    """Heartbeat of this service; parts that act on the database call ``beat`` regularly."""

    def __init__(self, engine: Engine, clock: Clock, dead_after_s: float, *, host: str | None = None) -> None:
        self.service = uuid.uuid4().hex
        """Id of this service process."""
        self.host = host or socket.gethostname()
        self._engine, self._clock, self.dead_after_s = engine, clock, dead_after_s
        self._started = self._last = clock.now()
        self._write(self._started)

    @property
    def silent_since(self) -> float:
        """Time since which every living service has sent a heartbeat."""
        return self._clock.now() - self.dead_after_s

    def beat(self) -> None:
        """Send a heartbeat, if it is due."""
        now = self._clock.now()
        if abs(now - self._last) >= (CHECK_EVERY_S if outage.reason else SHARE * self.dead_after_s):
            self._write(now)
            self._last = now
            outage.clear()

    def leave(self) -> None:
        """Sign off, so that other services take over the jobs immediately. If the database does not answer, they do so
        later."""
        try:
            self._write(0.0)
        except Exception as error:
            if not is_unavailable(error):
                raise
            outage.report(error, "the end of the service")

    def _write(self, beat: float) -> None:
        services = tables.services
        mine = update(services).where(services.c.id == self.service).values(beat=beat)
        row = {"id": self.service, "host": self.host, "pid": os.getpid(), "started": self._started, "beat": beat}
        with writing(self._engine) as connection:
            if outage.reason is not None:
                check_writable(connection)
            if not connection.execute(mine).rowcount:  # the first one, or housekeeping has removed the row
                connection.execute(insert(services).values(row))
