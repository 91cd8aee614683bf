"""Another way to tell when a cron line fires: look at every minute. Slow and plain, and it shares no code with ours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

_DAYS, _MONTHS = "sun mon tue wed thu fri sat", "jan feb mar apr may jun jul aug sep oct nov dec"
_FIRST_NUMBERS = ((0, _DAYS), (1, _MONTHS))
NAMES = {name: str(number) for first, names in _FIRST_NUMBERS for number, name in enumerate(names.split(), first)}
WORDS = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0"}
MINUTE = 60


def every_firing(line: str, zone: str, start: float, end: float) -> list[float]:
    """All firings within ``(start, end]``."""
    minute, hour, *_ = WORDS.get(line, line).split()
    if minute[0] == "*" or hour[0] == "*":
        found = {time for local, times in _clock(zone, start, end).items() if _names(line, local) for time in times}
    else:
        # Of every minute on the calendar: the first time that clocks show it, or else when they have skipped it.
        shown = _clock(zone, start - 2 * 86400, end + 2 * 86400)
        found = set()
        local, last = min(shown), max(shown)
        while local <= last:
            if _names(line, local):
                later = local
                while later not in shown:
                    later += timedelta(minutes=1)
                found.add(shown[later][0])
            local += timedelta(minutes=1)
    return sorted(time for time in found if start < time <= end)


@cache
def _clock(zone: str, start: float, end: float) -> dict[datetime, list[float]]:
    """Map each local time of a zone to its Unix times (two when the clocks go back)."""
    shown: dict[datetime, list[float]] = {}
    at = ZoneInfo(zone)
    for time in range(int(start // MINUTE) * MINUTE, int(end) + 1, MINUTE):
        shown.setdefault(datetime.fromtimestamp(time, at).replace(tzinfo=None), []).append(float(time))
    return shown


def _names(line: str, local: datetime) -> bool:
    minute, hour, day, month, weekday = WORDS.get(line, line).split()
    if not (_has(minute, local.minute, 59) and _has(hour, local.hour, 23) and _has(month, local.month, 12)):
        return False
    days, weekdays = _has(day, local.day, 31), _has(weekday, local.isoweekday() % 7, 7)
    return days and weekdays if "*" in (day[0], weekday[0]) else days or weekdays


@cache
def _has(field: str, value: int, highest: int) -> bool:
    for part in field.split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        first = 0 if low == "*" else int(NAMES.get(low, low))
        last = highest if low == "*" or (step and not high) else int(NAMES.get(high or low, high or low))
        if value in range(first, last + 1, int(step or 1)):
            return True
    return False


assert datetime.fromtimestamp(0, UTC).isoweekday() == 4  # a Thursday: isoweekday() % 7 is cron's number
