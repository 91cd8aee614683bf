"""Converts cron lines to the formats of other schedulers, which support less than a schedule does."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime

from cronsim import CronSim, CronSimError

from sweeps.errors import UserError

DAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
SHORTHANDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_OF_SOME = re.compile(r"\dL|\bLW?\b|#", re.IGNORECASE)
"""Syntax of a field that not every cron program knows."""


def plain_fields(cron: str) -> list[str]:
    """Return the five fields of a cron line, without syntax that some cron programs lack.

    Raises:
        UserError: The line has L, LW or #, which only some schedulers understand.
    """
    fields = SHORTHANDS.get(cron.strip().lower(), cron).split()
    if len(fields) != 5 or any(map(_OF_SOME.search, fields)):
        raise UserError(
            f"cron={cron!r}: has L, LW or #, which other schedulers do not know; change it, or let `serve` fire it"
        )
    return fields


def calendar_events(cron: str, timezone: str) -> list[str]:
    """Return a cron line as systemd's calendar events (``OnCalendar``); the timer fires at any of them.

    Raises:
        UserError: As ``plain_fields``, or the line is not valid.
    """
    fields = plain_fields(cron)
    try:
        line = CronSim(" ".join(fields), datetime(2000, 1, 1))  # noqa: DTZ001 - any time on the calendar
    except CronSimError as error:
        raise UserError(f"cron={cron!r}: {error}; correct that field") from None
    time = f"{_listed(line.hours, 24)}:{_listed(line.minutes, 60)}:00 {timezone}"
    months, days = _listed(line.months, 12), _listed(line.days, 31)
    found = {value % 7 for value in line.weekdays if isinstance(value, int)}
    weekdays = "" if len(found) == 7 else ",".join(DAYS[value] for value in sorted(found))
    if not line.day_and:  # cron(8): either of them
        return [f"*-{months}-{days} {time}", f"{weekdays} *-{months}-* {time}".strip()]
    return [f"{weekdays} *-{months}-{days} {time}".strip()]


def _listed(values: Collection[int], possible: int) -> str:
    """Return the values of a field; ``*`` for all possible ones."""
    return "*" if len(values) == possible else ",".join(f"{value:02}" for value in sorted(values))
