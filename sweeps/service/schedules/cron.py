"""When a cron line fires, with daylight saving as Debian's cron has it (cron(8)).

A line at fixed times (neither minutes nor hours begin with ``*``) fires once for each of them: a time that the clocks
skip is made up for as soon as they have, and one that comes twice counts the first time. Any other line fires whenever
a clock on the wall shows a time that it names: not at times that are skipped, and twice at those that come twice.

CronSim reads the lines and finds their times on the calendar. Which instants those are is found here: CronSim's own
answer depends on where one begins to ask (2.8: it fires at a midnight that is skipped if the day before does not match,
and loses times where clocks change by half an hour, as on Lord Howe Island).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from sweeps.suggestions import did_you_mean

SHORTHANDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MAY_BE = {
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31 that a month which it names has, or L for the last",
    "month": "1-12 or jan-dec",
    "day-of-week": "0-7 or sun-sat, 5L for the last Friday, mon#1 for the first Monday",
}

_DAY_S = 86400
_STRETCH_S = 7 * _DAY_S
"""No zone changes its clocks back and forth within so many seconds."""
_LONGEST_S = 50 * 366 * _DAY_S
"""A line that has not fired for so long never does: CronSim's own limit."""


class CronLine:
    """A cron line in a time zone."""

    def __init__(self, line: str, timezone: str) -> None:
        """
        Args:
            line: Five fields, or one of ``SHORTHANDS``.
            timezone: As ``zone`` takes it.

        Raises:
            ValueError: It is none, or never fires; says what is wrong with which field.
        """
        self.zone = zone(timezone)
        self._fields = SHORTHANDS.get(line.strip().lower(), line)
        if self._fields.startswith("@"):
            raise ValueError(f"there is no such shorthand; there is {', '.join(SHORTHANDS)}")
        if (count := len(self._fields.split())) != len(_MAY_BE):
            raise ValueError(f"has {count} fields and must have five: {' '.join(_MAY_BE)}, as in '30 2 * * mon-fri'")
        try:
            next(CronSim(self._fields, datetime(2000, 1, 1)))  # noqa: DTZ001 - a day on the calendar
        except CronSimError as error:
            field = str(error).removeprefix("Bad ")
            raise ValueError(f"its {field} must be {_MAY_BE[field]}; lists, ranges and steps of them") from None
        except StopIteration:
            raise ValueError("names days that never come") from None
        minute, hour, *_ = self._fields.split()
        self._at_fixed_times = not minute.startswith("*") and not hour.startswith("*")

    def after(self, time: float) -> Iterator[float]:
        """All times after this one at which it fires, in order; seconds since 1970."""
        return self._fixed(time) if self._at_fixed_times else self._shown(time)

    def _fixed(self, time: float) -> Iterator[float]:
        last = time
        for local in CronSim(self._fields, self._local(time)):
            instant = instant_of(local, self.zone)
            if instant > last:  # several that are skipped are made up for at once
                last = instant
                yield instant

    def _shown(self, time: float) -> Iterator[float]:
        start = int(time // 1) + 1
        limit = start + _LONGEST_S
        while start < limit:
            end = _change_of_clocks(self.zone, start, start + _STRETCH_S) or start + _STRETCH_S
            offset = _offset(self.zone, start)
            for local in CronSim(self._fields, self._local(start - 1, offset)):
                instant = local.replace(tzinfo=UTC).timestamp() - offset
                if instant >= end:
                    break
                yield instant
                limit = end + _LONGEST_S
            start = end

    def _local(self, time: float, offset: float | None = None) -> datetime:
        """What clocks show, or would show at another offset from UTC."""
        offset = _offset(self.zone, time) if offset is None else offset
        return datetime.fromtimestamp(time + offset, UTC).replace(tzinfo=None)


def zone(name: str) -> ZoneInfo:
    """
    Args:
        name: In the IANA database, such as ``Europe/Berlin``.

    Raises:
        ValueError: It is not there.
    """
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not there, no name but a path, a folder
        known = did_you_mean(name, available_timezones())
        raise ValueError(f"there is no such time zone{known}; use one such as UTC or Europe/Berlin") from None


def instant_of(local: datetime, zone: ZoneInfo) -> float:
    """When clocks show this, in seconds since 1970: the first time, if twice; when they have skipped it, if never."""
    instant = int(local.replace(tzinfo=zone, fold=0).timestamp())
    if datetime.fromtimestamp(instant, zone).replace(tzinfo=None) == local:
        return float(instant)
    changed = _change_of_clocks(zone, instant - 2 * _DAY_S, instant)  # a zone may skip a whole day: Samoa, 2011
    assert changed is not None
    return float(changed)


def _offset(zone: ZoneInfo, time: float) -> float:
    """Seconds that a zone is ahead of UTC."""
    offset = datetime.fromtimestamp(time, zone).utcoffset()
    assert offset is not None
    return offset.total_seconds()


def _change_of_clocks(zone: ZoneInfo, start: int, end: int) -> int | None:
    """The second within ``(start, end]`` from which another offset holds; at most one change is expected there."""
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
