"""Firings are decided exactly once: a scheduler is killed (SIGKILL) at every statement that it makes, and two of them
again and again over a year of cron lines; what became of the firings is compared with a plain enumeration."""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from every_minute import every_firing
from scheduled import at, defined, set_state
from sqlalchemy import Engine, delete, event, func, select
from waiting import wait_until

from sweeps.config.service import Service
from sweeps.service.clock import Clock
from sweeps.service.database import tables
from sweeps.service.database.engine import open_database, opened_database, writing
from sweeps.service.schedules import scheduler as scheduler_module
from sweeps.service.schedules.definition import Definition
from sweeps.service.schedules.firing import decide, retire
from sweeps.service.schedules.scheduler import Scheduler
from sweeps.service.service_context import ServiceContext

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def url(service_database: str) -> str:
    return service_database


def in_child(work: Callable[[], Any]) -> int:
    """Number of a process that does this and ends. No connection may be open while it is made."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def was_killed(pid: int) -> bool:
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def rows(url: str) -> tuple[list[Any], list[Any], list[Any]]:
    """All that firing has written, without the numbers of jobs."""
    firings, jobs, schedules = tables.firings.c, tables.jobs.c, tables.schedules.c
    with opened_database(url) as engine, engine.connect() as connection:
        of_job = (
            select(firings.schedule, firings.due, firings.outcome, firings.reason, jobs.sweep)
            .select_from(tables.firings)
            .outerjoin(tables.jobs, jobs.id == firings.job)
        )
        return (
            list(connection.execute(of_job.order_by(firings.due))),
            list(connection.execute(select(jobs.sweep, jobs.state, jobs.stop_asked).order_by(jobs.id))),
            list(connection.execute(select(schedules.name, schedules.decided, schedules.cron, schedules.enabled))),
        )


def empty(url: str) -> None:
    with opened_database(url) as engine, writing(engine) as connection:
        for table in reversed(tables.metadata.sorted_tables):
            connection.execute(delete(table))


# --- at every statement -------------------------------------------------------------------------------------------

NOON, LATER = at("2026-01-01 12:00"), at("2026-01-04 09:00")


def _first(engine: Engine) -> None:
    decide(engine, defined(), NOON)


def _with_one_running(engine: Engine) -> None:
    decide(engine, defined(), NOON)
    decide(engine, defined(), at("2026-01-02 02:00"))
    set_state(engine, "running")


SCENARIOS: dict[str, tuple[Callable[[Engine], None], Callable[[Engine], Any]]] = {
    "new": (lambda _: None, lambda engine: decide(engine, defined(), NOON)),
    "latest": (_first, lambda engine: decide(engine, defined(), LATER)),
    "all": (_first, lambda engine: decide(engine, defined(missed="all", overlap="queue"), LATER)),
    "skip": (_with_one_running, lambda engine: decide(engine, defined(), LATER)),
    "stop_old": (_with_one_running, lambda engine: decide(engine, defined(missed="all", overlap="stop_old"), LATER)),
    "changed": (_first, lambda engine: decide(engine, defined("0 3 * * *", overlap="queue"), LATER)),
    "disabled": (_first, lambda engine: decide(engine, defined(enabled=False), LATER)),
    "removed": (_first, lambda engine: retire(engine, defined(), LATER)),
}


def killed_at(number: int, engine: Engine) -> None:
    """Let this process be killed at so many points: before and after each statement, and before and after a commit."""
    passed = 0

    def point(*_: Any) -> None:
        nonlocal passed
        passed += 1
        if passed == number:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("begin", "before_cursor_execute", "after_cursor_execute", "commit"):
        event.listen(engine, name, point)
    event.listen(engine, "reset", point)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_kill_at_any_statement_leaves_all_of_a_decision_or_nothing(url: str, scenario: str) -> None:
    before, act = SCENARIOS[scenario]
    with opened_database(url) as engine:
        before(engine)
        untouched = rows(url)
        act(engine)
    whole = rows(url)
    outcomes, number, killed = set(), 0, True
    while killed:
        number += 1
        empty(url)
        with opened_database(url) as engine:
            before(engine)

        def attempt(number: int = number) -> None:
            engine = open_database(url)
            killed_at(number, engine)
            act(engine)

        killed = was_killed(in_child(attempt))
        left = rows(url)
        assert left in (untouched, whole), number
        outcomes.add(str(left))
        with opened_database(url) as engine:
            act(engine)
        assert rows(url) == whole, number
    assert number > 6
    assert outcomes == {str(untouched), str(whole)}


# --- over a year ------------------------------------------------------------------------------------------------------

START, END = at("2026-01-01 00:00"), at("2027-01-01 00:00")
EVERY_ONE = {"missed": "all", "overlap": "queue"}
YEAR = [
    defined("0 * * * *", name="hourly", timezone="Australia/Lord_Howe", **EVERY_ONE),
    defined("*/20 1-3 * * 0", name="sundays", timezone="Europe/Berlin", **EVERY_ONE),
    defined("30 2 * * *", name="skipped_in_spring", timezone="Europe/Berlin", **EVERY_ONE),
    defined("30 1 * * *", name="twice_in_autumn", timezone="America/New_York", **EVERY_ONE),
    defined("0 0 * * *", name="midnight", timezone="America/Santiago", **EVERY_ONE),
    defined("15 2 * * *", name="half_an_hour", timezone="Australia/Lord_Howe", **EVERY_ONE),
    defined("15 */3 * * *", name="jitter", jitter_s=900, **EVERY_ONE),
    defined("0 9 1 * mon", name="or", timezone="Asia/Kathmandu", **EVERY_ONE),
    defined("0 */4 * * *", name="latest", timezone="Europe/London", missed="latest", overlap="queue"),
    defined("30 */6 * * *", name="none", missed="none", overlap="queue", grace_s=1800),
    defined("10 5 * * *", name="skip", timezone="Europe/Berlin", overlap="skip"),
    defined("20 */8 * * *", name="stop_old", overlap="stop_old"),
]


class SharedClock(Clock):
    """Time that stands in a file, which several processes map."""

    def __init__(self, file: Path) -> None:
        file.touch()
        with file.open("r+b") as opened_file:
            opened_file.truncate(8)
            self._time = mmap.mmap(opened_file.fileno(), 8)

    def now(self) -> float:
        return float(struct.unpack("d", self._time)[0])

    def set(self, now: float) -> None:
        self._time[:] = struct.pack("d", now)

    def steady(self) -> float:
        return self.now()

    def wait(self, wake: threading.Event, seconds: float) -> bool:
        until = self.now() + seconds
        while self.now() < until and not wake.is_set():
            time.sleep(0.001)
        return wake.is_set()


def serve(url: str, clock: SharedClock, definitions: list[Definition]) -> NoReturn:
    """A service's scheduler, until it is killed."""
    scheduler_module.load_own = lambda *_: {each.name: each for each in definitions}
    Scheduler(ServiceContext(Service(), open_database(url), clock), number=str(os.getpid())).start()
    while True:
        time.sleep(1)


class Services:
    """Two services, some of the time."""

    def __init__(self, url: str, clock: SharedClock) -> None:
        self._url, self._clock = url, clock
        self.pids: dict[int, int] = {}
        self.kills = 0

    def start(self, slot: int) -> None:
        if slot not in self.pids:
            self.pids[slot] = in_child(lambda: serve(self._url, self._clock, YEAR))

    def kill(self, slot: int) -> None:
        if slot in self.pids:
            pid = self.pids.pop(slot)
            os.kill(pid, signal.SIGKILL)
            assert was_killed(pid)
            self.kills += 1


def decided(url: str) -> dict[str, float]:
    schedules = tables.schedules.c
    with opened_database(url) as engine, engine.connect() as connection:
        found = connection.execute(select(schedules.name, schedules.decided))
        return {row.name: row.decided for row in found}


def travel(url: str, clock: SharedClock, services: Services, chance: random.Random) -> None:
    """A year passes, mostly in steps of hours, in smaller ones where clocks change, while services come and go."""
    changes = [at(f"2026-{day}") for day in ("03-08", "03-29", "04-05", "09-06", "10-04", "10-25", "11-01")]
    now, steps = START, 0
    while now < END:
        near = any(change - 43200 < now < change + 86400 for change in changes)
        now = min(END, now + chance.uniform(60, 1800 if near else 6 * 3600))
        clock.set(now)
        time.sleep(chance.uniform(0, 0.012))
        if chance.random() < 0.06:
            services.kill(chance.randrange(2))
        if chance.random() < 0.06:
            services.start(chance.randrange(2))
        steps += 1
        if steps % 40 == 0:
            with opened_database(url) as engine:
                set_state(engine, "finished")


def test_over_a_year_two_services_killed_at_random_lose_no_firing_and_double_none(url: str, tmp_path: Path) -> None:
    chance = random.Random(6)
    clock = SharedClock(tmp_path / "clock")
    clock.set(START)
    open_database(url).dispose()
    services = Services(url, clock)
    try:
        services.start(0)
        wait_until(lambda: len(decided(url)) == len(YEAR), 60)
        services.start(1)
        travel(url, clock, services, chance)
        services.start(0)
        services.start(1)
        clock.set(END + 3600)  # whatever its jitter, all of the year is decided by then
        expected = {each.name: every_firing(each.schedule.cron, each.schedule.timezone, START, END) for each in YEAR}
        wait_until(lambda: all(decided(url)[name] >= due[-1] for name, due in expected.items()), 300)
    finally:
        for slot in (0, 1):
            services.kill(slot)

    firings, jobs = tables.firings.c, tables.jobs.c
    with opened_database(url) as engine, engine.connect() as connection:
        found = list(connection.execute(select(firings.schedule, firings.due, firings.outcome, firings.job)))
        made = list(connection.execute(select(jobs.id, jobs.schedule, jobs.due, jobs.sweep)))
        names = connection.execute(select(func.count(func.distinct(jobs.sweep)))).scalar_one()
    for each in YEAR:
        mine = sorted(due for schedule, due, _, _ in found if schedule == each.name and due <= END)
        assert mine == expected[each.name], each.name
    queued = [(job, schedule, due) for schedule, due, outcome, job in found if outcome == "queued"]
    assert sorted(queued) == sorted((job, schedule, due) for job, schedule, due, _ in made)
    assert len({(schedule, due) for _, schedule, due, _ in made}) == len(made) == names
    outcomes = {each.name: {outcome for schedule, _, outcome, _ in found if schedule == each.name} for each in YEAR}
    assert all(outcomes[each.name] == {"queued"} for each in YEAR if each.schedule.missed == "all")
    assert {"queued", "missed"} <= outcomes["latest"] & outcomes["none"]
    assert services.kills > 30
    print(f"{len(found)} firings, {len(made)} jobs, {services.kills} kills")
