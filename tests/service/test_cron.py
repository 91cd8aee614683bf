"""When a cron line fires, against a plain enumeration of every minute that a zone's clocks show."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from every_minute import every_firing

from sweeps.config.schedule import Budget, Schedule, Window
from sweeps.config.search import Cost
from sweeps.errors import ConfigError
from sweeps.service.schedules import cron
from sweeps.service.schedules.cron import CronLine
from sweeps.service.schedules.definition import Definition
from sweeps.service.web.schedule_form import FilledSchedule, filled_from

BERLIN = "Europe/Berlin"
FIXED = [
    *("30 2 * * *", "0 0 * * *", "15,30,45 2 * * *", "30 1,2,3 * * *"),
    *("59 23 31 * *", "10-50/20 1-3 * * 0", "0 3 29 2 *"),
]
SHOWN = [
    *("* * * * *", "*/15 * * * *", "0 */2 * * *", "15 * * * *"),
    *("*/30 1-2 * * *", "*/30 0 * * 0", "30 * * 3,4,9-11 sun", "*/30 1-3 25,29 3,10 *"),
]
LINES = [*FIXED, *SHOWN, "@hourly", "@daily", "@weekly"]

# Zone -> days around which its clocks change: both ways, at midnight, by half an hour, in the south, by a whole day.
CHANGES = {
    BERLIN: ["2026-03-29", "2026-10-25"],
    "America/New_York": ["2026-03-08", "2026-11-01"],
    "Australia/Lord_Howe": ["2026-04-05", "2026-10-04"],
    "America/Santiago": ["2026-04-05", "2026-09-06"],
    "Africa/Cairo": ["2026-04-24", "2026-10-30"],
    "Africa/Casablanca": ["2026-02-15", "2026-03-22"],
    "Antarctica/Troll": ["2026-03-29", "2026-10-25"],
    "Asia/Kathmandu": ["2026-06-01"],
    "Pacific/Apia": ["2011-12-30"],
    "UTC": ["2026-03-29"],
}


def zones(*quick: str) -> pytest.MarkDecorator:
    marked = [zone if zone in quick else pytest.param(zone, marks=pytest.mark.slow) for zone in CHANGES]
    return pytest.mark.parametrize("zone", marked)


def at(shown: str, zone: str, fold: int = 0) -> float:
    return datetime.fromisoformat(shown).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def firings(line: str, zone: str, start: float, end: float) -> list[float]:
    return list(takewhile(lambda time: time <= end, CronLine(line, zone).after(start)))


def shown(line: str, zone: str, after: str, count: int) -> list[str]:
    times = islice(CronLine(line, zone).after(at(after, zone)), count)
    return [datetime.fromtimestamp(time, ZoneInfo(zone)).isoformat(" ", "minutes") for time in times]


@zones(BERLIN, "America/New_York")
def test_around_a_change_of_clocks_every_line_fires_when_an_enumeration_says(zone: str) -> None:
    for day in CHANGES[zone]:
        middle = at(f"{day} 00:00", "UTC")
        start, end = middle - 3 * 86400, middle + 3 * 86400
        for line in LINES:
            assert firings(line, zone, start, end) == every_firing(line, zone, start, end), (line, day)


@zones(BERLIN)
def test_what_is_asked_first_changes_no_answer(zone: str) -> None:
    for day in CHANGES[zone]:
        middle = at(f"{day} 00:00", "UTC")
        start, end = middle - 86400, middle + 86400
        for line in LINES:
            whole = firings(line, zone, start, end)
            for later in (start + 977.5 * number for number in range(170)):
                assert next(CronLine(line, zone).after(later)) == next(
                    (each for each in whole if each > later), None
                ) or (later >= max(whole, default=start)), (line, day, later)


def test_a_time_that_is_skipped_is_made_up_for_when_the_clocks_have_changed() -> None:
    assert shown("30 2 * * *", BERLIN, "2026-03-28 12:00", 2) == ["2026-03-29 03:00+02:00", "2026-03-30 02:30+02:00"]
    assert shown("15 2 * * *", "Australia/Lord_Howe", "2026-10-03 12:00", 1) == ["2026-10-04 02:30+11:00"]
    assert shown("10,20,30 2 * * *", "America/New_York", "2026-03-07 12:00", 2) == [
        "2026-03-08 03:00-04:00",
        "2026-03-09 02:10-04:00",
    ]


def test_a_time_that_comes_twice_counts_the_first_time() -> None:
    assert shown("30 2 * * *", BERLIN, "2026-10-24 12:00", 2) == ["2026-10-25 02:30+02:00", "2026-10-26 02:30+01:00"]
    assert list(islice(CronLine("45 2 * * *", BERLIN).after(at("2026-10-25 02:30", BERLIN, fold=1)), 1)) == [
        at("2026-10-26 02:45", BERLIN)
    ]


def test_a_skipped_midnight_is_no_midnight_for_a_line_with_a_star() -> None:
    assert shown("*/30 0 6 9 *", "America/Santiago", "2026-09-05 12:00", 1) == ["2027-09-06 00:00-03:00"]


def test_a_line_that_fires_in_leap_years_is_not_looked_for_week_by_week(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of such a schedule with a window kept the service busy for minutes."""
    searches = list[str]()

    def search(line: str, start: datetime) -> CronSim:
        searches.append(line)
        return CronSim(line, start)

    monkeypatch.setattr(cron, "CronSim", search)
    expected = [f"{year}-02-29 00:{minute:02}+01:00" for year in (2028, 2032) for minute in (0, 30)]
    assert shown("*/30 0 29 2 *", BERLIN, "2026-01-01 00:00", 4) == expected
    assert len(searches) < 20


@pytest.mark.parametrize("line", ["@yearly", "*/30 0 1 1 *"])
def test_firings_end_with_the_calendar(line: str) -> None:
    """`schedule next -n 10000` asks for those of 10,000 years."""
    years = {time[:4] for time in shown(line, BERLIN, "9990-06-01 00:00", 100)}
    assert {f"{year}" for year in range(9991, 9999)} <= years


def test_days_are_joined_as_cron_joins_them() -> None:
    assert shown("0 0 13 * fri", "UTC", "2026-02-01 00:00", 2) == ["2026-02-06 00:00+00:00", "2026-02-13 00:00+00:00"]
    assert shown("0 0 L * *", "UTC", "2028-02-01 00:00", 1) == ["2028-02-29 00:00+00:00"]
    assert shown("0 12 29 2 *", "UTC", "2026-01-01 00:00", 1) == ["2028-02-29 12:00+00:00"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("0 25 * * *", "its hour must be 0-23"),
        ("0 0 30 2 *", "day-of-month"),
        ("0 0 * *", "has 4 fields and must have five"),
        ("0 0 * * * *", "has 6 fields and must have five"),
        ("@reboot", "there is no such shorthand; use one of @yearly"),
        ("", "has 0 fields"),
        ("0 0 * * 8", "day-of-week must be 0-7"),
        ("a * * * *", "minute must be 0-59"),
    ],
)
def test_a_wrong_line_is_answered_with_what_its_field_may_be(line: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        CronLine(line, "UTC")


@pytest.mark.parametrize("name", ["Europe/Berln", "", "/etc/localtime", "../UTC", "CETT"])
def test_an_unknown_zone_is_answered_with_the_nearest(name: str) -> None:
    with pytest.raises(ValueError, match="no such time zone") as refused:
        CronLine("@daily", name)
    if name == "Europe/Berln":
        assert BERLIN in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("zone", [BERLIN, "Australia/Lord_Howe", "America/Santiago", "Africa/Casablanca"])
def test_over_two_years_every_line_fires_when_an_enumeration_says(zone: str) -> None:
    start = at("2026-01-01 00:00", "UTC")
    for line in LINES:
        assert firings(line, zone, start, start + 730 * 86400) == every_firing(line, zone, start, start + 730 * 86400)


def test_a_line_that_fires_every_minute_may_have_any_window_at_any_hour() -> None:
    schedule = Schedule(name="n", cron="* * * * *", conf="digits", window=Window(start="22:00", end="23:00"))
    for hour in range(24):
        now = datetime(2026, 11, 28, hour, 10, tzinfo=UTC).timestamp()
        assert Definition(schedule).mistakes_of_times(now) == []


def test_the_form_of_a_schedule_keeps_its_name_and_every_digit_of_its_numbers() -> None:
    cost = Cost(limit=12345.67, per_gpu_hour=2.1234567, per_cpu_hour=1e-7)
    schedule = Schedule(name="v1.0", cron="@daily", conf="digits", grace_s=1234567.0, budget=Budget(cost=cost))
    assert filled_from(schedule, "", "").schedule() == schedule


@pytest.mark.parametrize(
    ("nights", "told"),
    [
        ("champion: &a {model: mine}\nregression: *a", "repeats a value with *; write the value itself"),
        ("[" * 5000, "maximum recursion depth exceeded"),
        ("1" * 5000, "Exceeds the limit (4300 digits)"),
        ("champion: 2026-13-01", "month must be in 1..12"),
    ],
)
def test_a_text_that_yaml_cannot_read_or_only_without_end_is_a_mistake_in_the_form(nights: str, told: str) -> None:
    form = FilledSchedule(values={"name": "mine", "cron": "@daily", "conf": "digits", "nights": nights})
    with pytest.raises(ConfigError, match=re.escape(f"nights: {told}")):
        form.schedule()
