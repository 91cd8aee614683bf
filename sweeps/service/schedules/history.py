"""How long firings are remembered."""

from __future__ import annotations

from sqlalchemy import Engine, delete, func, select

from sweeps.service.database import tables
from sweeps.service.database.engine import writing

DAY_S = 86400.0


def forget(engine: Engine, now: float, keep_days: float) -> int:
    """Forget what became of old firings; returns how many. None of them is decided again: ``schedules.decided`` lies
    after them. It, and not a clock that may be wrong, says what is old; each schedule keeps its newest firing.

    Args:
        engine: The service's database.
        now: The time.
        keep_days: How long they are remembered.
    """
    schedules, firings = tables.schedules, tables.firings
    forgotten = 0
    with engine.connect() as connection:
        newest = select(schedules.c.name, schedules.c.decided, func.max(firings.c.due)).join(
            firings, firings.c.schedule == schedules.c.name
        )
        rows = connection.execute(newest.group_by(schedules.c.name, schedules.c.decided)).all()
    for name, decided, last in rows:
        old = min(last, min(now, decided) - keep_days * DAY_S)
        with writing(engine) as connection:
            gone = delete(firings).where(firings.c.schedule == name, firings.c.due < old)
            forgotten += connection.execute(gone).rowcount
    return forgotten
