"""Removal of old firings."""

from __future__ import annotations

from sqlalchemy import Engine, delete, func, select

from sweeps.service.database import tables
from sweeps.service.database.engine import writing

DAY_S = 86400.0


def remove_old(engine: Engine, now: float, keep_days: float) -> int:
    """Remove old firings, and return their number. They are not decided again, since ``schedules.decided`` is later;
    it, rather than a clock that may be wrong, determines what is old. The newest firing of each schedule is kept.

    Args:
        engine: The service's database.
        now: Present time.
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
