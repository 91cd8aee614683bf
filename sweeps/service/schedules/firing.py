"""Firings, each of them decided exactly once: also with several services at once, and killed at any statement.

``schedules.decided`` says up to when all firings of a schedule have been decided. A decision, the job that comes of it
and the new ``decided`` are one transaction, which holds the schedule's row: a kill leaves all of it or nothing, and who
comes next, here or in another service, goes on from there. The key of ``firings`` would refuse a second decision.

What becomes of a schedule that is not as it was, from the moment at which a service sees it:

- A new one, or one that has another name, fires from now on.
- With another cron line or time zone it fires by that from now on; up to now the old one counts.
- Disabled or gone, it does not fire; what was still undecided is missed. Enabled or back, it fires from now on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from sqlalchemy import Connection, Engine, RowMapping, insert, select, update

from sweeps.service import database, jobs
from sweeps.service.database import writing
from sweeps.service.jobs import Job
from sweeps.service.requests import Run
from sweeps.service.schedules.definition import Definition, OutsideWindow

QUEUED, SKIPPED, MISSED = "queued", "skipped", "missed"
AT_ONCE = 100
"""Firings of ``missed: all`` that become jobs in one transaction, while which nobody else may write."""

_schedules, _firings = database.schedules, database.firings


@dataclass(frozen=True, kw_only=True)
class Firing:
    """What became of a firing."""

    schedule: str
    due: float
    """The time that the cron line names."""
    outcome: str
    """queued, skipped or missed."""
    job: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class _Pending:
    """A firing that is to be decided now."""

    due: float
    ready: float
    """When it was to be decided."""
    end: float | None
    """When its sweep must have ended."""
    outside: str | None = None
    """Why its window leaves it out."""

    def may_start(self, now: float) -> bool:
        return self.outside is None and (self.end is None or now < self.end)


def next_decision(definition: Definition, decided: float) -> float:
    """When the first firing after those that are decided is to be decided itself; infinite if there is none."""
    first = next(_in_turn(definition, decided), None)
    return math.inf if first is None else first.ready


def decide(engine: Engine, definition: Definition, now: float, service: str | None = None) -> list[Firing]:
    """Decide what becomes of a schedule's firings up to now, and put their sweeps into the queue.

    Args:
        engine: The service's database.
        definition: The schedule.
        now: The time.
        service: Who decides.

    Returns:
        The firings that were decided; with ``missed: all`` at most ``AT_ONCE``, and more the next time.
    """
    schedule = definition.schedule
    as_defined = {"cron": schedule.cron, "timezone": schedule.timezone, "enabled": schedule.enabled}
    with writing(engine) as connection:
        row = _held(connection, definition.name)
        if row is None:
            connection.execute(insert(_schedules).values(name=definition.name, decided=now, **as_defined))
            return []
        known = {key: row[key] for key in as_defined}
        if not row["enabled"]:
            decided = []
        elif known == as_defined:
            return _decide_pending(connection, definition, row["decided"], now, service)
        elif not schedule.enabled:
            decided = _miss_pending(connection, definition.name, row, now, service, "the schedule was disabled")
        else:
            decided = _decide_pending(connection, _as_it_was(definition, row), row["decided"], now, service, all_of_them=True)
        if known != as_defined or schedule.enabled:
            changed = update(_schedules).where(_schedules.c.name == definition.name)
            connection.execute(changed.values(decided=now, **as_defined))
        return decided


def retire(engine: Engine, definition: Definition, now: float, service: str | None = None) -> list[Firing]:
    """A schedule is gone: decide so of what is undecided. Should it come back, it fires from then on."""
    with writing(engine) as connection:
        row = _held(connection, definition.name)
        if row is None or not row["enabled"]:
            return []
        mine = update(_schedules).where(_schedules.c.name == definition.name)
        missed = _miss_pending(connection, definition, row, now, service, "the schedule was removed")
        connection.execute(mine.values(enabled=False, decided=now))
        return missed
