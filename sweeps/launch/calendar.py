"""Converts cron lines to the formats of other schedulers, which support less than a schedule does."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sweeps.errors import UserError

MONTHS = ("", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
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
_PART = re.compile(r"^(?:\*|(\w+)(?:-(\w+))?)(?:/(\d+))?$")


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
        UserError: As ``plain_fields``.
    """
    minute, hour, day, month, weekday = plain_fields(cron)
    time = f"{_listed(hour, 0, 23, (), 2)}:{_listed(minute, 0, 59, (), 2)}:00 {timezone}"
    months, days = _listed(month, 1, 12, MONTHS, 2), _listed(day, 1, 31, (), 2)
    weekdays = _weekdays(weekday)
    if not day.startswith("*") and not weekday.startswith("*"):  # cron(8): either of them
        return [f"*-{months}-{days} {time}", f"{weekdays} *-{months}-* {time}".strip()]
    return [f"{weekdays} *-{months}-{days} {time}".strip()]


def _weekdays(field: str) -> str:
    values = sorted({value % 7 for value in _values(field, 0, 7, DAYS)})
    return "" if len(values) == 7 else ",".join(DAYS[value].capitalize() for value in values)


def _listed(field: str, low: int, high: int, names: Sequence[str], width: int) -> str:
    values = _values(field, low, high, names)
    return "*" if len(values) == high - low + 1 else ",".join(f"{value:0{width}}" for value in values)


def _values(field: str, low: int, high: int, names: Sequence[str]) -> list[int]:
    """Return the values of a field, in order."""
    found: set[int] = set()
    for part in field.split(","):
        matched = _PART.match(part)
        if matched is None:
            raise UserError(f"cron: the field {field!r} cannot be written for another scheduler")
        first, last, step = matched.groups()
        start = low if first is None else _number(first, names)
        end = _number(last, names) if last is not None else high if first is None or step is not None else start
        found |= set(range(start, end + 1, int(step or 1)))
    return sorted(found)


def _number(text: str, names: Sequence[str]) -> int:
    return int(text) if text.isdigit() else list(names).index(text.lower()[:3])
