"""Times of a cron line, with daylight saving time handled as in Debian's cron (cron(8)).

A line with fixed times (neither minutes nor hours begin with ``*``) fires exactly once for each time: a skipped time
fires right after the clock change, and a repeated one fires the first time. Any other line fires whenever the local
clock shows a matching time: never at skipped times, and twice at repeated ones.

CronSim parses the lines and finds matching calendar times; this module converts these to instants. CronSim's own
conversion depends on the start of the iteration (2.8: it fires at a skipped midnight if the day before does not match,
and loses times where clocks change by half an hour, as on Lord Howe Island).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from sweeps.launch.calendar import SHORTHANDS
from sweeps.texts.suggestions import did_you_mean

_MAY_BE = {
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31, a day that one of its months has, or L for the last",
    "month": "1-12 or jan-dec",
    "day-of-week": "0-7 or sun-sat, 5L for the last Friday, mon#1 for the first Monday",
}

_DAY_S = 86400
_SPAN_S = 7 * _DAY_S
"""Seconds within which no time zone changes its clocks twice."""
_LONGEST_CHANGE_S = 2 * _DAY_S
"""Maximum seconds by which a zone changes its clocks, which may be a whole day: Samoa, 2011."""
_LONGEST_S = 50 * 366 * _DAY_S
"""Seconds without a firing after which a line never fires: CronSim's own limit."""


class CronLine:
    """A cron line in a time zone."""

    def __init__(self, line: str, timezone: str) -> None:
        """Read a line of five fields, or one of ``SHORTHANDS``, for a time zone that ``zone`` knows.

        Raises:
            ValueError: The line or the zone is invalid, or the line never fires.
        """
        self.zone = zone(timezone)
        self._fields = SHORTHANDS.get(line.strip().lower(), line)
        if self._fields.startswith("@"):
            raise ValueError(f"there is no such shorthand; use one of {', '.join(SHORTHANDS)}")
        if (count := len(self._fields.split())) != len(_MAY_BE):
            raise ValueError(f"has {count} fields and must have five: {' '.join(_MAY_BE)}, as in '30 2 * * mon-fri'")
        try:
            next(CronSim(self._fields, datetime(2000, 1, 1)))  # noqa: DTZ001 - a day on the calendar
        except CronSimError as error:
            field = str(error).removeprefix("Bad ")
            raise ValueError(f"its {field} must be {_MAY_BE[field]}, or a list, range or step of these") from None
        except StopIteration:
            raise ValueError("names a day that never comes; change the day or the month") from None
        minute, hour, *_ = self._fields.split()
        self._at_fixed_times = not minute.startswith("*") and not hour.startswith("*")

    def after(self, time: float) -> Iterator[float]:
        """Yield all later times at which the line fires, in order, to the year 9999; seconds since 1970."""
        with contextlib.suppress(OverflowError, ValueError):  # of Python's calendar, at its end
            yield from self._fixed(time) if self._at_fixed_times else self._by_clock(time)

    def _fixed(self, time: float) -> Iterator[float]:
        last = time
        for local in CronSim(self._fields, self._local(time)):
            instant = instant_of(local, self.zone)
            if instant > last:  # several skipped times share one instant
                last = instant
                yield instant

    def _by_clock(self, time: float) -> Iterator[float]:
        start = int(time // 1) + 1
        limit = start + _LONGEST_S
        while start < limit:
            change = _change_of_clocks(self.zone, start, start + _SPAN_S)
            end = change or start + _SPAN_S
            offset = _offset(self.zone, start)
            instant = float(limit)
            for local in CronSim(self._fields, self._local(start - 1, offset)):
                instant = local.replace(tzinfo=UTC).timestamp() - offset
                if instant >= end:
                    break
                yield instant
                limit = end + _LONGEST_S
            # No calendar time matches in between; a change at the end may repeat times from before the start.
            start = end if change is not None else max(end, int(instant) - _LONGEST_CHANGE_S)

    def _local(self, time: float, offset: float | None = None) -> datetime:
        """Return the local time at an instant, by default with the offset that applies then."""
        offset = _offset(self.zone, time) if offset is None else offset
        return datetime.fromtimestamp(time + offset, UTC).replace(tzinfo=None)


def zone(name: str) -> ZoneInfo:
    """Return the time zone with a name in the IANA database, such as ``Europe/Berlin``, or raise ``ValueError``."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, a path, or a folder
        known = did_you_mean(name, available_timezones())
        raise ValueError(f"there is no such time zone{known}; use one such as UTC or Europe/Berlin") from None


def instant_of(local: datetime, zone: ZoneInfo) -> float:
    """Return the instant of a local time, in seconds since 1970. A repeated local time is its first occurrence; a
    skipped one is the clock change."""
    instant = int(local.replace(tzinfo=zone, fold=0).timestamp())
    if datetime.fromtimestamp(instant, zone).replace(tzinfo=None) == local:
        return float(instant)
    changed = _change_of_clocks(zone, instant - _LONGEST_CHANGE_S, instant)
    assert changed is not None
    return float(changed)


def _offset(zone: ZoneInfo, time: float) -> float:
    """Return the seconds by which a zone is ahead of UTC."""
    offset = datetime.fromtimestamp(time, zone).utcoffset()
    assert offset is not None
    return offset.total_seconds()


def _change_of_clocks(zone: ZoneInfo, start: int, end: int) -> int | None:
    """Return the second in ``(start, end]`` at which the offset changes; None if it does not. At most one change is
    expected."""
    before = _offset(zone, start)
    if _offset(zone, end) == before:
        return None
    while end - start > 1:
        middle = (start + end) // 2
        if _offset(zone, middle) == before:
            start = middle
        else:
            end = middle
    return end
