"""Hundreds of thousands of jobs: every question is answered from an index, pages are found by number, and what is old
is removed."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from postgres import on_both_databases
from serving import API, Api, new_api
from sqlalchemy import Engine, event, insert, select

from sweeps.config.service import Queue
from sweeps.service import subprocesses
from sweeps.service.auth.permissions import Principal
from sweeps.service.clock import Clock
from sweeps.service.database import tables
from sweeps.service.database.engine import open_database, writing
from sweeps.service.nights.command_lines import LOCKS
from sweeps.service.notify.deliveries import enqueue
from sweeps.service.queue import claims, jobs
from sweeps.service.queue.heartbeat import Heartbeat
from sweeps.service.queue.housekeeping import DAY_S, forget_jobs, forget_messages, forget_services, remove_logs
from sweeps.service.queue.jobs import ENDED, STATES
from sweeps.service.web import pages

COUNT = 600
ADA = Principal("ada", "run", ("chat", "vision"))


def row(number: int, **more: Any) -> dict[str, Any]:
    """A job that has ended: of three users in turn, in the four states in turn."""
    name = f"digits-{number}"
    return {
        "verb": "run",
        "sweep": name,
        "makes": name,
        "request": {"verb": "run", "conf": "digits", "overrides": [], "name": name},
        "user": ("ada", "bob", "eve")[number % 3],
        "project": ("chat", "vision", "none")[number % 3],
        "priority": 0,
        "state": ENDED[number % 4],
        "submitted": float(number),
        "started": float(number),
        "ended": float(number),
        "attempts": 1,
        "told": float(number),
        "schedule": "nightly" if number % 5 == 0 else None,
        "due": float(number) if number % 5 == 0 else None,
    } | more


def fill(engine: Engine, count: int = COUNT) -> None:
    with writing(engine) as connection:
        connection.execute(insert(tables.jobs), [row(number) for number in range(1, count + 1)])
        for number in range(count + 1, count + 4):
            live = row(number, state="queued", started=None, ended=None, told=None)
            connection.execute(insert(tables.jobs), live)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A service with these jobs, which tests only read."""
    with closing(new_api(tmp_path_factory.mktemp("many"))) as api:
        fill(api.service.database)
        yield api


@pytest.fixture
def own_api(tmp_path: Path) -> Iterator[Api]:
    """Another one, which a test may change."""
    with closing(new_api(tmp_path)) as api:
        fill(api.service.database)
        yield api


def scans(engine: Engine, asked: list[tuple[str, Any]]) -> list[str]:
    """The questions that SQLite answers by reading all jobs."""
    found = []
    with engine.connect() as connection:
        for statement, parameters in asked:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            steps = [str(step[3]) for step in plan]
            if any(re.match(r"SCAN (jobs|firings)\b", step) for step in steps):
                found.append(f"{statement} {steps}")
    return found


@pytest.fixture
def asked(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, Any]]]:
    """All that the database is asked of jobs."""
    monkeypatch.setattr(pages, "FRESH_S", 0.0)
    with listening(api.service.database) as statements:
        yield statements


@contextmanager
def listening(database: Engine) -> Iterator[list[tuple[str, Any]]]:
    statements: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
        if re.match(r"(?is)\s*(select|update|delete)\b.*\bjobs\b", statement):
            statements.append((statement, parameters))

    event.listen(database, "before_cursor_execute", note)
    yield statements
    event.remove(database, "before_cursor_execute", note)


PATHS = [
    "/",
    "/?state=failed&q=digits",
    "/queue",
    "/schedules",
    "/sweeps/digits-7",
    f"{API}/jobs",
    f"{API}/jobs?before=300",
    f"{API}/jobs?state=failed&state=queued",
    f"{API}/jobs?state=queued",
    f"{API}/jobs?user=bob&before=200",
    f"{API}/jobs?user=nobody",
    f"{API}/jobs?project=chat&state=stopped",
    f"{API}/jobs?schedule=nightly",
    f"{API}/jobs?user=ada&project=chat&schedule=nightly",
    f"{API}/jobs/5",
    f"{API}/schedules",
]


@pytest.mark.parametrize("path", PATHS)
def test_pages_and_the_api_ask_by_indexes_for_few_jobs(api: Api, asked: list[tuple[str, Any]], path: str) -> None:
    assert api.client().get(path).status_code == 200
    assert 1 <= len(asked) <= 12
    assert scans(api.service.database, asked) == []


def test_so_do_callers_who_see_a_part(api: Api, asked: list[tuple[str, Any]]) -> None:
    engine = api.service.database
    with engine.connect() as connection:
        found = jobs.query(connection, principal=ADA, limit=50)
        filtered = jobs.query(connection, principal=ADA, user="bob", states=["failed"], limit=50)
    assert {job.user for job in found} == {"ada", "bob"}
    assert {(job.user, job.state) for job in filtered} == {("bob", "failed")}
    assert len(asked) >= 2
    assert scans(engine, asked) == []


def test_so_do_the_queue_and_the_messages(own_api: Api) -> None:
    service = own_api.service
    with listening(service.database) as asked:
        with writing(service.database) as connection:
            assert claims.claim(connection, Queue(), "me", "here", 10_000.0) is not None
        service.notifier.step()
        with service.database.connect() as connection:
            claims.running_on(connection, "me")
            claims.orphans(connection, 0.0)
        service.housekeeping.step()
    assert len(asked) > 5
    assert scans(service.database, asked) == []


def test_pages_by_number_hold_every_job_once(api: Api) -> None:
    client, seen, before = api.client(), [], ""
    while True:
        page = client.get(f"{API}/jobs?limit=100{before}").json()
        seen += [job["id"] for job in page["jobs"]]
        if page["next"] is None:
            break
        before = f"&before={page['next']}"
    assert seen == list(range(COUNT + 3, 0, -1))


@on_both_databases
def test_listing_equals_a_plain_look_at_all_jobs(engine: Engine) -> None:
    fill(engine, 120)
    with engine.connect() as connection:
        every = [jobs.find(connection, number) for number in range(123, 0, -1)]
        for principal in (None, ADA, Principal("eve", "read"), Principal("x", "admin")):
            for states in (STATES, ("failed",), ("queued", "stopped")):
                for named in ({}, {"user": "bob"}, {"project": "chat", "schedule": "nightly"}):
                    for before in (None, 60):
                        plain = [
                            job.id
                            for job in every
                            if job.state in states
                            and all(getattr(job, name) == value for name, value in named.items())
                            and (before is None or job.id < before)
                            and (principal is None or principal.role == "admin" or _is_of(principal, job))
                        ]
                        asked: Any = {"principal": principal, "states": states, "before": before, **named}
                        assert [job.id for job in jobs.query(connection, limit=7, offset=3, **asked)] == plain[3:10]
                        assert [job.id for job in jobs.query(connection, **asked)] == plain


def _is_of(principal: Principal, job: jobs.Job) -> bool:
    return job.user == principal.user or job.project in principal.projects


def test_an_old_failure_is_found_by_its_name_when_the_list_has_it_no_more(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "FRESH_S", 0.0)
    monkeypatch.setattr(pages, "ENDED_JOBS", 5)
    client = api.client()
    listed = client.get("/").text
    assert "digits-600" in listed
    assert 'digits-3"' not in listed
    assert client.get("/sweeps/digits-3").status_code == 200


def test_old_jobs_are_forgotten_unless_the_sweep_that_they_made_is_there(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/service.db")
    fill(engine, 20)
    with writing(engine) as connection:
        connection.execute(
            insert(tables.firings).values(schedule="nightly", due=5.0, outcome="queued", decided=5.0, job=5)
        )
        connection.execute(insert(tables.jobs), row(50, makes=None, ended=3.0))
        connection.execute(insert(tables.jobs), row(51, state="running", ended=None, submitted=1.0))
    assert forget_jobs(engine, 11.0, {"digits-2", "digits-7"}) == 9
    with engine.connect() as connection:
        left = [job.sweep for job in jobs.query(connection)]
        assert connection.execute(select(tables.firings.c.job)).scalar_one() is None
    assert sorted(int(name.removeprefix("digits-")) for name in left) == [2, 7, *range(11, 24), 51]
    assert forget_jobs(engine, 15.0, None) == 0  # the store does not say which sweeps there are
    engine.dispose()


def test_neither_a_clock_that_is_ahead_nor_an_empty_store_makes_the_service_forget_jobs(
    own_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody would know whose sweeps are, when the store is back."""
    service, now = own_api.service, 4000 * DAY_S

    def left_after(number: int, **more: Any) -> set[int]:
        with writing(service.database) as connection:
            connection.execute(insert(tables.jobs), row(number, **more))
        service.housekeeping.step()
        with service.database.connect() as connection:
            return {job.id for job in jobs.query(connection)}

    monkeypatch.setattr(service.clock, "now", lambda: now)
    before = set(range(1, COUNT + 5))
    assert left_after(COUNT + 4, makes=None) == before  # it is the clock, as the newest job says
    assert left_after(COUNT + 5, submitted=now, ended=now) == {*before, COUNT + 5} - {COUNT + 4}  # which made no sweep


@on_both_databases
def test_messages_of_long_ago_are_forgotten(engine: Engine) -> None:
    for created in (1.0, 99.0):
        with writing(engine) as connection:
            enqueue(connection, f"at {created}", ["chat"], {}, created)
    forget_messages(engine, 50.0)
    with engine.connect() as connection:
        assert connection.execute(select(tables.deliveries.c.created)).scalars().all() == [99.0]


@on_both_databases
def test_services_that_were_silent_for_long_are_forgotten_unless_their_jobs_run(engine: Engine) -> None:
    with writing(engine) as connection:
        for name, beat in (("old", 1.0), ("holds", 1.0), ("new", 99.0)):
            connection.execute(insert(tables.services).values(id=name, host="here", pid=1, started=1.0, beat=beat))
        connection.execute(insert(tables.jobs), row(1, state="running", ended=None, service="holds"))
    forget_services(engine, 50.0)
    with engine.connect() as connection:
        assert set(connection.execute(select(tables.services.c.id)).scalars()) == {"holds", "new"}


def test_a_service_that_was_asleep_until_others_forgot_it_is_known_again(engine: Engine) -> None:
    clock = Clock()
    heartbeat = Heartbeat(engine, clock, 0.1)
    forget_services(engine, clock.now() + 1)
    time.sleep(0.1)
    heartbeat.beat()
    with engine.connect() as connection:
        assert connection.execute(select(tables.services.c.id)).scalars().all() == [heartbeat.service]


def test_logs_of_jobs_that_ended_long_ago_and_locks_of_nights_are_removed(tmp_path: Path) -> None:
    for name in ("job-1-1", "job-2-2"):
        folder = subprocesses.control_folder(tmp_path, name)
        folder.mkdir(parents=True)
        (folder / "driver.log").write_text("x")
    old = subprocesses.control_folder(tmp_path, "job-1-1")
    for path in (old / "driver.log", old):
        os.utime(path, (1.0, 1.0))
    locks = tmp_path / LOCKS
    locks.mkdir()
    for name, changed in (("report-old", 1.0), ("report-new", 2000.0)):
        (locks / name).touch()
        os.utime(locks / name, (changed, changed))
    assert remove_logs(tmp_path, 1000.0) == 1
    assert [each.name for each in locks.iterdir()] == ["report-new"]
    assert [each.name for each in subprocesses.control_folder(tmp_path, "").iterdir()] == ["job-2-2"]
