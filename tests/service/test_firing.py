"""Firings of schedules: each is handled once, in order, by the schedule's own rules."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from postgres import on_both_databases
from scheduled import Travelling, at, defined, outcomes, set_state, sweeps
from sqlalchemy import Engine, select

from sweeps.config.service import Queue, Service
from sweeps.service.database import tables
from sweeps.service.database.engine import open_database, writing
from sweeps.service.queue import claims
from sweeps.service.queue.heartbeat import Heartbeat
from sweeps.service.schedules.definition import Definition
from sweeps.service.schedules.firing import decide, fire_now, next_decision, remove_old, retire
from sweeps.service.schedules.overview import states
from sweeps.service.schedules.scheduler import Scheduler
from sweeps.service.service_context import ServiceContext

BERLIN = "Europe/Berlin"


def reason(engine: Engine, due: str) -> str:
    asked = select(tables.firings.c.reason).where(tables.firings.c.due == at(due))
    with engine.connect() as connection:
        return str(connection.execute(asked).scalar_one())


@on_both_databases
def test_a_firing_becomes_one_job_however_often_it_is_looked_at_though_a_clock_is_set_back(engine: Engine) -> None:
    nightly = defined(overlap="queue")
    for time in ("01 12:00", "02 01:59", "02 02:00", "02 02:00", "02 01:30", "02 02:00", "02 02:01"):
        decide(engine, nightly, at(f"2026-01-{time}"))
    assert outcomes(engine) == {"02 02:00": "queued"}
    assert sweeps(engine) == ["nightly-20260102-020000"]


def test_the_job_is_what_the_schedule_says(engine: Engine) -> None:
    nightly = defined(
        timezone=BERLIN,
        overrides=["search.num_trials=3"],
        budget={"wall_hours": 2},
        priority=5,
        project="speech",
        window={"start": "01:00", "end": "06:30"},
    )
    decide(engine, nightly, at("2026-07-01 12:00"))
    decide(engine, nightly, at("2026-07-02 00:00:10"))
    with engine.connect() as connection:
        row = connection.execute(select(tables.jobs)).mappings().one()
    assert row["request"]["overrides"] == ["search.num_trials=3", "search.stop.wall_hours=2.0"]
    assert (row["sweep"], row["priority"], row["project"]) == ("nightly-20260702-020000", 5, "speech")
    assert (row["due"], row["end_by"]) == (at("2026-07-02 02:00", BERLIN), at("2026-07-02 06:30", BERLIN))


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ("latest", ["missed", "missed", "queued"]),
        ("all", ["queued", "queued", "queued"]),
        ("none", ["missed", "missed", "missed"]),
    ],
)
def test_what_was_missed_runs_as_the_schedule_says(engine: Engine, missed: str, expected: list[str]) -> None:
    nightly = defined(missed=missed, overlap="queue")
    decide(engine, nightly, at("2026-01-01 12:00"))
    decide(engine, nightly, at("2026-01-04 09:00"))
    assert list(outcomes(engine).values()) == expected
    decide(engine, nightly, at("2026-01-05 02:00"))
    assert outcomes(engine)["05 02:00"] == "queued"


@pytest.mark.parametrize("missed", ["latest", "none"])
def test_a_firing_within_its_grace_is_not_missed_and_makes_earlier_ones_late(engine: Engine, missed: str) -> None:
    hourly = defined("@hourly", missed=missed, grace_s=120)
    decide(engine, hourly, at("2026-01-01 00:30"))
    decide(engine, hourly, at("2026-01-01 04:01:59"))
    assert list(outcomes(engine).values()) == ["missed", "missed", "missed", "queued"]


@pytest.mark.slow
def test_very_many_missed_firings_all_run_part_by_part(engine: Engine) -> None:
    every_minute = defined("* * * * *", missed="all", overlap="queue")
    decide(engine, every_minute, at("2026-01-01 00:00"))
    counts = [len(decide(engine, every_minute, at("2026-01-01 04:10"))) for _ in range(4)]
    assert counts == [100, 100, 50, 0]
    assert len(set(sweeps(engine))) == 250


@pytest.mark.parametrize("state", ["queued", "running"])
def test_while_the_last_sweep_goes_on_a_firing_is_skipped(engine: Engine, state: str) -> None:
    nightly = defined(overlap="skip")
    for day in (1, 2, 3):
        decide(engine, nightly, at(f"2026-01-0{day} 02:00"))
        set_state(engine, state)
    assert outcomes(engine) == {"02 02:00": "queued", "03 02:00": "skipped"}
    assert "nightly-20260102-020000 still" in reason(engine, "2026-01-03 02:00")
    set_state(engine, "finished")
    decide(engine, nightly, at("2026-01-04 02:00"))
    assert outcomes(engine)["04 02:00"] == "queued"


def test_a_sweep_whose_window_is_over_before_it_starts_skips_no_other(engine: Engine) -> None:
    nightly = defined(overlap="skip", window={"hours": 4})
    for day in (1, 2, 3):
        decide(engine, nightly, at(f"2026-01-0{day} 02:00"))
    assert outcomes(engine) == {"02 02:00": "queued", "03 02:00": "queued"}
    assert sweeps(engine, "queued") == ["nightly-20260103-020000"]


def next_service(engine: Engine, nightly: Definition, started: str) -> str:
    """Id of a service that starts then, after one that was killed while it ran the sweep of 2 January."""
    decide(engine, nightly, at("2026-01-01 12:00"))
    decide(engine, nightly, at("2026-01-02 02:00"))
    with writing(engine) as connection:
        assert claims.claim(connection, Queue(), "killed", "here", at("2026-01-02 02:00"))
    return Heartbeat(engine, Travelling(started), 30.0).service


def test_a_sweep_that_ended_while_no_service_was_up_blocks_no_firing(engine: Engine) -> None:
    nightly, started = defined(overlap="skip"), "2026-01-04 09:00"
    service = next_service(engine, nightly, started)
    for seconds in range(20):
        decide(engine, nightly, at(started) + seconds, service)
    assert outcomes(engine) == {"02 02:00": "queued", "03 02:00": "missed"}
    set_state(engine, "finished")  # its runner has found out
    decide(engine, nightly, at(started) + 20, service)
    assert outcomes(engine)["04 02:00"] == "queued"


def test_a_sweep_of_an_earlier_service_that_runs_still_blocks_a_firing(engine: Engine) -> None:
    nightly = defined(overlap="skip")
    service = next_service(engine, nightly, "2026-01-03 01:59:30")
    decide(engine, nightly, at("2026-01-03 02:00:29"), service)
    assert outcomes(engine) == {"02 02:00": "queued"}
    decide(engine, nightly, at("2026-01-03 02:00:30"), service)
    assert outcomes(engine)["03 02:00"] == "skipped"


@on_both_databases
def test_a_firing_becomes_one_job_though_several_services_look_at_once(engine: Engine, service_database: str) -> None:
    decide(engine, defined(), at("2026-01-01 12:00"))
    go = threading.Barrier(4)

    def look() -> None:
        own = open_database(service_database)
        go.wait(60)
        decide(own, defined(), at("2026-01-02 02:00"))
        own.dispose()

    with ThreadPoolExecutor(4) as services:
        for looked in [services.submit(look) for _ in range(4)]:
            looked.result(60)
    assert sweeps(engine) == ["nightly-20260102-020000"]


@on_both_databases
def test_a_firing_may_take_the_place_of_sweeps_that_run_and_wait(engine: Engine) -> None:
    nightly = defined(overlap="stop_old")
    for day in (1, 2):
        decide(engine, nightly, at(f"2026-01-0{day} 02:00"))
    set_state(engine, "running")
    with writing(engine) as connection:
        fire_now(connection, nightly, at("2026-01-02 12:00"))
    decide(engine, nightly, at("2026-01-03 02:00"))
    with engine.connect() as connection:
        rows = connection.execute(
            select(tables.jobs.c.state, tables.jobs.c.stop_asked).order_by(tables.jobs.c.id)
        ).all()
    assert rows == [("running", at("2026-01-03 02:00")), ("cancelled", None), ("queued", None)]


def test_jitter_is_the_same_for_everybody_and_delays_a_decision(engine: Engine) -> None:
    nightly, other = defined(jitter_s=600), defined(jitter_s=600, name="other")
    due = at("2026-01-02 02:00")
    start, again, of_other = (next(each.firings(due - 1)).starts for each in (nightly, defined(jitter_s=600), other))
    assert due < start < due + 600
    assert start == again != of_other
    decide(engine, nightly, at("2026-01-01 12:00"))
    assert next_decision(nightly, at("2026-01-01 12:00")) == start
    assert decide(engine, nightly, start - 0.5) == []
    assert [firing.due for firing in decide(engine, nightly, start)] == [due]


@pytest.mark.slow
def test_jitter_longer_than_the_time_between_firings_loses_none(engine: Engine) -> None:
    often = defined("* * * * *", jitter_s=600, overlap="queue", missed="none")
    start = at("2026-01-01 00:00")
    for second in range(0, 3600, 20):
        decide(engine, often, start + second)
    found = outcomes(engine)
    assert len(found) > 45
    assert set(found.values()) == {"queued"}


def test_outside_of_its_window_a_firing_is_skipped_and_after_it_missed(engine: Engine) -> None:
    hourly = defined("@hourly", window={"start": "22:00", "end": "01:00"}, overlap="queue", missed="all")
    decide(engine, hourly, at("2026-01-01 20:30"))
    decide(engine, hourly, at("2026-01-01 23:30"))
    assert list(outcomes(engine).values()) == ["skipped", "queued", "queued"]
    assert "21:00 is outside of its window, 22:00 to 01:00" in reason(engine, "2026-01-01 21:00")
    decide(engine, hourly, at("2026-01-02 01:00"))
    assert list(outcomes(engine).values())[3:] == ["missed", "skipped"]
    assert "in its window" in reason(engine, "2026-01-02 00:00")


def test_the_latest_that_may_still_start_is_run_though_a_later_one_may_not(engine: Engine) -> None:
    hourly = defined("@hourly", window={"start": "08:00", "end": "12:00"})
    decide(engine, hourly, at("2026-01-01 07:30"))
    decide(engine, hourly, at("2026-01-01 11:40"))
    assert list(outcomes(engine).values()) == ["missed", "missed", "missed", "queued"]


def test_a_window_ends_when_clocks_show_it_also_if_they_go_back(engine: Engine) -> None:
    night = defined("*/15 2 * * *", timezone=BERLIN, window={"start": "02:00", "end": "02:50"})
    second = at("2026-10-25 01:45")  # clocks show 02:45 for the second time
    assert night.window(second) == (second + 300, None)
    assert defined(window={"hours": 3}).window(second) == (second + 3 * 3600, None)


def test_twice_the_same_time_on_the_clock_gives_two_names(engine: Engine) -> None:
    hourly = defined("@hourly", timezone=BERLIN, overlap="queue", missed="all")
    decide(engine, hourly, at("2026-10-24 23:30"))
    decide(engine, hourly, at("2026-10-25 02:00"))
    assert sweeps(engine) == [
        "nightly-20261025-020000",
        "nightly-20261025-020000-2",
        "nightly-20261025-030000",
    ]


def test_a_name_that_is_taken_keeps_no_schedule_from_firing(engine: Engine) -> None:
    nightly = defined()
    decide(engine, nightly, at("2026-01-01 12:00"))
    with writing(engine) as connection:
        fire_now(connection, nightly, at("2026-01-02 02:00"))
    set_state(engine, "finished")
    decide(engine, nightly, at("2026-01-02 02:00"))
    assert sweeps(engine) == ["nightly-20260102-020000", "nightly-20260102-020000-2"]


def test_a_firing_by_hand_takes_no_firing_away(engine: Engine) -> None:
    nightly = defined()
    decide(engine, nightly, at("2026-01-01 12:00"))
    with writing(engine) as connection:
        job = fire_now(connection, nightly, at("2026-01-02 02:30"), "anna")
    assert (job.schedule, job.due, job.user) == ("nightly", at("2026-01-02 02:30"), "anna")
    set_state(engine, "finished")
    decide(engine, nightly, at("2026-01-02 03:00"))
    assert outcomes(engine) == {"02 02:00": "queued"}


def test_a_changed_line_counts_from_when_it_is_seen_and_the_old_one_until_then(engine: Engine) -> None:
    decide(engine, defined("0 2 * * *"), at("2026-01-01 12:00"))
    decide(engine, defined("0 3,4 * * *"), at("2026-01-02 03:30"))
    assert outcomes(engine) == {"02 02:00": "queued"}
    set_state(engine, "finished")
    decide(engine, defined("0 3,4 * * *"), at("2026-01-02 04:00"))
    assert outcomes(engine) == {"02 02:00": "queued", "02 04:00": "queued"}


def test_a_changed_zone_is_a_changed_line(engine: Engine) -> None:
    decide(engine, defined(timezone="UTC"), at("2026-01-01 12:00"))
    decide(engine, defined(timezone="Asia/Tokyo"), at("2026-01-01 12:30"))
    decide(engine, defined(timezone="Asia/Tokyo"), at("2026-01-02 02:00", "Asia/Tokyo"))
    assert outcomes(engine) == {"01 17:00": "queued"}


def test_a_firing_in_its_jitter_is_not_lost_by_a_changed_line(engine: Engine) -> None:
    decide(engine, defined(jitter_s=3600), at("2026-01-01 12:00"))
    decide(engine, defined("0 5 * * *", jitter_s=3600), at("2026-01-02 02:00"))
    assert outcomes(engine) == {"02 02:00": "queued"}


def test_disabled_it_does_not_fire_and_enabled_again_it_makes_up_for_nothing(engine: Engine) -> None:
    decide(engine, defined(), at("2026-01-01 12:00"))
    decide(engine, defined(enabled=False), at("2026-01-02 12:00"))
    assert outcomes(engine) == {"02 02:00": "missed"}
    assert "disabled" in reason(engine, "2026-01-02 02:00")
    decide(engine, defined(enabled=False), at("2026-01-03 12:00"))
    decide(engine, defined(), at("2026-01-04 12:00"))
    decide(engine, defined(), at("2026-01-05 02:00"))
    assert outcomes(engine) == {"02 02:00": "missed", "05 02:00": "queued"}


def test_one_that_is_new_and_disabled_fires_from_when_it_is_enabled(engine: Engine) -> None:
    decide(engine, defined(enabled=False), at("2026-01-01 12:00"))
    decide(engine, defined(), at("2026-01-03 12:00"))
    decide(engine, defined(), at("2026-01-04 02:00"))
    assert outcomes(engine) == {"04 02:00": "queued"}


def test_removed_and_back_it_makes_up_for_nothing(engine: Engine) -> None:
    decide(engine, defined(), at("2026-01-01 12:00"))
    retire(engine, defined(), at("2026-01-01 13:00"))
    retire(engine, defined(), at("2026-01-01 14:00"))
    decide(engine, defined(), at("2026-01-03 12:00"))
    decide(engine, defined(), at("2026-01-04 02:00"))
    assert outcomes(engine) == {"04 02:00": "queued"}


def test_renamed_it_is_another_schedule(engine: Engine) -> None:
    decide(engine, defined(), at("2026-01-01 12:00"))
    decide(engine, defined(name="nocturnal"), at("2026-01-02 01:00"))
    decide(engine, defined(name="nocturnal"), at("2026-01-03 02:00"))
    assert outcomes(engine) == {}
    assert outcomes(engine, "nocturnal") == {"02 02:00": "missed", "03 02:00": "queued"}


def test_what_is_long_ago_is_forgotten_and_not_decided_again(engine: Engine) -> None:
    nightly = defined()
    decide(engine, nightly, at("2026-03-01 12:00"))
    for day in range(2, 12):
        decide(engine, nightly, at(f"2026-03-{day:02} 12:00"))
        set_state(engine, "finished")
    assert remove_old(engine, at("2026-03-11 13:00"), 4) == 5
    assert list(outcomes(engine)) == [f"{day:02} 02:00" for day in range(7, 12)]
    assert len(sweeps(engine)) == 10
    assert decide(engine, nightly, at("2026-03-11 13:00")) == []
    assert remove_old(engine, at("2026-03-11 13:00"), 4) == 0
    # What is long ago is said by what has been decided: a clock that is wrong forgets nothing, and the newest stays.
    assert remove_old(engine, at("2030-01-01 00:00"), 4) == 0
    assert remove_old(engine, at("2026-03-11 13:00"), 0.1) == 4
    assert list(outcomes(engine)) == ["11 02:00"]
    with engine.connect() as connection:
        (state,) = states({"nightly": nightly}, at("2026-03-11 13:00"), connection)
    assert state.last is not None
    assert (state.last.outcome, state.last.due) == ("queued", at("2026-03-11 02:00"))


def test_the_scheduler_forgets_once_a_day(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "schedule").mkdir()
    (tmp_path / "schedule" / "mine.yaml").write_text("name: mine\ncron: '0 2 * * *'\nconf: digits\n", encoding="utf-8")
    clock = Travelling("2026-03-01 12:00")
    scheduler = Scheduler(ServiceContext(Service(schedules=["mine"], keep_firings_days=2), engine, clock, [tmp_path]))
    for _ in range(6):
        scheduler.poll()
        set_state(engine, "finished")
        clock.time += 86400
    assert list(outcomes(engine, "mine")) == ["04 02:00", "05 02:00", "06 02:00"]
