"""This process among those that serve from the database: it gives signs of life, by which others know it is there."""

from __future__ import annotations

import os
import socket
import uuid

from sqlalchemy import Connection, Engine, func, insert, select, update

from sweeps.service.clock import Clock
from sweeps.service.database import tables
from sweeps.service.database.engine import writing
from sweeps.service.database.storage_errors import outage

SHARE = 0.2
"""Of the time after which a silent service is taken for dead, between two signs of life."""

CHECK_EVERY_S = 1.0
"""Seconds between two tries to write, while the storage does not work."""


def is_served(connection: Connection, silent_since: float) -> bool:
    """Whether a service serves from this database, and was heard of since."""
    services = tables.services
    return connection.execute(select(services.c.id).where(services.c.beat >= silent_since).limit(1)).first() is not None


def last_beat(connection: Connection, host: str) -> float | None:
    """Of all services that were ever on a host, by its own clock."""
    services = tables.services
    beat: float | None = connection.execute(
        select(func.max(services.c.beat)).where(services.c.host == host)
    ).scalar_one()
    return beat


class Heartbeat:
    """Whoever acts by the database calls ``beat`` now and then."""

    def __init__(self, engine: Engine, clock: Clock, dead_after_s: float, *, host: str | None = None) -> None:
        """
        Args:
            engine: The service's database.
            clock: What time it is.
            dead_after_s: Seconds of silence after which a service is taken for dead.
            host: Name of the machine; default: this one's.
        """
        self.service = uuid.uuid4().hex
        """Number of this service: another one after every start."""
        self.host = host or socket.gethostname()
        self._engine, self._clock, self._dead_after_s = engine, clock, dead_after_s
        self._started = self._last = clock.now()
        self._write(self._started)

    @property
    def silent_since(self) -> float:
        """Who was last heard of before is dead."""
        return self._clock.now() - self._dead_after_s

    def beat(self) -> None:
        """Give a sign of life, if it is time."""
        now = self._clock.now()
        if abs(now - self._last) >= (CHECK_EVERY_S if outage.reason else SHARE * self._dead_after_s):
            self._write(now)
            self._last = now
            outage.clear()

    def leave(self) -> None:
        """The service ends: others need not wait to take over what it leaves."""
        self._write(0.0)

    def _write(self, beat: float) -> None:
        services = tables.services
        mine = update(services).where(services.c.id == self.service).values(beat=beat)
        row = {"id": self.service, "host": self.host, "pid": os.getpid(), "started": self._started, "beat": beat}
        with writing(self._engine) as connection:
            if not connection.execute(mine).rowcount:  # the first, or another service took it for long gone
                connection.execute(insert(services).values(row))
