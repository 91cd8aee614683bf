"""Removes old firings, and all data of schedules that were removed long ago."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Engine, delete, func, select

from sweeps.service.database import tables
from sweeps.service.database.engine import writing

DAY_S = 86400.0


def remove_old(engine: Engine, now: float, keep_days: float) -> int:
    """Remove old firings, and return their number. They are not decided again, since ``schedules.decided`` is later;
    this time, rather than a clock that may be wrong, determines which are old. The newest firing of each schedule is
    kept.

    Args:
        engine: The service's database.
        now: Current time.
        keep_days: Days for which firings are kept.
    """
    schedules, firings = tables.schedules, tables.firings
    removed = 0
    with engine.connect() as connection:
        newest = select(schedules.c.name, schedules.c.decided, func.max(firings.c.due)).join(
            firings, firings.c.schedule == schedules.c.name
        )
        rows = connection.execute(newest.group_by(schedules.c.name, schedules.c.decided)).all()
    for name, decided, last in rows:
        old = min(last, min(now, decided) - keep_days * DAY_S)
        with writing(engine) as connection:
            statement = delete(firings).where(firings.c.schedule == name, firings.c.due < old)
            removed += connection.execute(statement).rowcount
    return removed


def forget(engine: Engine, names: Sequence[str]) -> None:
    """Remove the firings and nights of schedules, so that a user who later takes the same name does not see them.

    Args:
        engine: The service's database.
        names: Names of the schedules.
    """
    if not names:
        return
    with writing(engine) as connection:
        for column in (tables.firings.c.schedule, tables.nights.c.schedule, tables.schedules.c.name):
            connection.execute(delete(column.table).where(column.in_(names)))
