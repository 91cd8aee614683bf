"""The queue: who starts next, what is claimed once, what a service leaves behind when it dies."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from postgres import on_both_databases
from sqlalchemy import Engine, insert

from sweeps.config.service import Queue
from sweeps.errors import ConfigError, UnknownName, UserError
from sweeps.service.database import tables
from sweeps.service.database.engine import open_database, writing
from sweeps.service.queue import claims, jobs
from sweeps.service.queue.heartbeat import last_beat
from sweeps.service.queue.job_requests import Extend, Request, Resume, Retrain, Run, read_request
from sweeps.service.queue.jobs import Job


def submit(engine: Engine, sweep: str, user: str = "ada", *, project: str = "", **options: Any) -> Job:
    request = options.pop("request", None) or Run(conf="digits")
    with writing(engine) as connection:
        return jobs.submit(connection, request, sweep, user=user, project=project or user, now=1.0, **options)


def claim(engine: Engine, limits: Queue | None = None, *, now: float = 10.0, host: str = "here") -> str | None:
    with writing(engine) as connection:
        job = claims.claim(connection, limits or Queue(running=100), "me", host, now)
    return None if job is None else job.sweep


def end(engine: Engine, sweep: str) -> None:
    with writing(engine) as connection:
        (job,) = [job for job in jobs.of_sweep(connection, sweep) if job.state == "running"]
        assert claims.end(connection, job, "me", "finished", 20.0) is not None


def test_the_higher_priority_starts_first_and_equals_in_their_order(engine: Engine) -> None:
    for sweep, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5)):
        submit(engine, sweep, priority=priority)
    with engine.connect() as connection:
        assert [job.sweep for job in jobs.query(connection, states=["queued"])] == ["b", "d", "a", "c"]
    assert [claim(engine) for _ in range(5)] == ["b", "d", "a", "c", None]


@on_both_databases
def test_among_equals_who_has_fewest_running_and_started_longest_ago_is_next(engine: Engine) -> None:
    for sweep in ("a1", "a2", "a3"):
        submit(engine, sweep, "ada")
    for sweep in ("b1", "b2"):
        submit(engine, sweep, "bob")
    one = Queue(running=1)
    order = []
    for now in range(5):
        sweep = claim(engine, one, now=10.0 + now)
        assert sweep is not None
        order.append(sweep)
        end(engine, sweep)
    assert order == ["a1", "b1", "a2", "b2", "a3"]


def test_no_more_run_than_the_limits_of_machine_user_and_project_allow(engine: Engine) -> None:
    limits = Queue(running=3, per_user=2, per_project=2)
    for sweep in ("a1", "a2", "a3"):
        submit(engine, sweep, "ada", project="vision")
    submit(engine, "b1", "bob", project="vision")
    submit(engine, "c1", "cyd", project="text")
    submit(engine, "d1", "dan", project="speech")
    assert [claim(engine, limits) for _ in range(4)] == ["a1", "b1", "c1", None]
    assert claim(engine, limits, host="there") == "d1"  # another machine has room of its own
    end(engine, "b1")
    assert claim(engine, limits) == "a2"


@on_both_databases
def test_a_sweep_is_run_by_one_job_at_a_time(engine: Engine) -> None:
    submit(engine, "a")
    submit(engine, "a", request=Resume(sweep="a"))
    assert [claim(engine), claim(engine)] == ["a", None]
    end(engine, "a")
    assert claim(engine) == "a"


@on_both_databases
def test_two_sweeps_of_one_schedule_never_run_at_once(engine: Engine) -> None:
    for sweep, schedule in (("n1", "nightly"), ("n2", "nightly"), ("h1", "hourly"), ("a", None)):
        submit(engine, sweep, schedule=schedule)
    assert [claim(engine) for _ in range(4)] == ["n1", "h1", "a", None]
    end(engine, "n1")
    assert claim(engine) == "n2"


@on_both_databases
@pytest.mark.parametrize("again", [Resume(sweep="n1"), Extend(sweep="n1", changes=["search.num_trials=9"])])
def test_a_continued_sweep_of_a_schedule_and_its_next_one_do_not_run_at_once(engine: Engine, again: Request) -> None:
    def ran(sweep: str, **options: Any) -> None:
        submit(engine, sweep, **options)
        assert claim(engine) == sweep

    ran("n1", schedule="nightly")
    end(engine, "n1")
    ran("n1", request=again)
    submit(engine, "n2", schedule="nightly")
    submit(engine, "h1", schedule="hourly")
    submit(engine, "a")
    assert [claim(engine) for _ in range(3)] == ["h1", "a", None]
    end(engine, "n1")
    assert claim(engine) == "n2"
    submit(engine, "n1", request=again)
    assert claim(engine) is None
    end(engine, "n2")
    assert claim(engine) == "n1"


def test_what_must_have_ended_by_now_starts_no_more(engine: Engine) -> None:
    late, early = submit(engine, "late", end_by=10.0), submit(engine, "early", end_by=10.5)
    assert claim(engine, now=10.0) == "early"
    with engine.connect() as connection:
        assert jobs.find(connection, late.id).state == "cancelled"
        assert "its deadline passed" in str(jobs.find(connection, late.id).error)
        assert jobs.find(connection, early.id).state == "running"


def test_a_job_must_end_after_the_least_of_its_limits_counted_from_its_start(engine: Engine) -> None:
    def ends(operator: float | None, own: float | None, window: float | None) -> float | None:
        job = submit(engine, "a", request=Run(conf="digits", max_hours=own), end_by=window)
        claim(engine, Queue(running=100, max_hours=operator), now=1000.0)
        with engine.connect() as connection:
            return jobs.find(connection, job.id).end_by

    assert ends(None, None, None) is None
    assert ends(2.0, None, None) == 1000.0 + 7200
    assert ends(2.0, 1.0, None) == ends(1.0, 2.0, 9000.0) == 1000.0 + 3600
    assert ends(2.0, 1.0, 2000.0) == 2000.0


def claimed_by_many(database: str) -> list[str]:
    """Sweeps that six at once have claimed, until there was none."""
    claimed: list[str] = []

    def take() -> None:
        own = open_database(database)
        while (sweep := claim(own)) is not None:
            claimed.append(sweep)
        own.dispose()

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return claimed


@on_both_databases
def test_many_who_claim_at_once_get_each_job_once(engine: Engine, service_database: str) -> None:
    for number in range(20):
        submit(engine, f"s{number}")
    assert sorted(claimed_by_many(service_database)) == sorted(f"s{number}" for number in range(20))


@on_both_databases
def test_what_a_dead_service_ran_is_taken_over_on_its_machine_and_it_cannot_end_it_any_more(engine: Engine) -> None:
    submit(engine, "a")
    submit(engine, "b")
    with writing(engine) as connection:
        for service, beat in (("dead", 5.0), ("alive", 99.0)):
            connection.execute(insert(tables.services).values(id=service, host="here", pid=1, started=1, beat=beat))
        job = claims.claim(connection, Queue(running=9), "dead", "here", 10.0)
        claims.claim(connection, Queue(running=9), "alive", "here", 10.0)
        assert job is not None
    with writing(engine) as connection:
        assert claims.take_over(connection, "new", "there", 50.0) == []
        assert [taken.sweep for taken in claims.take_over(connection, "new", "here", 50.0)] == ["a"]
    with writing(engine) as connection:
        assert claims.end(connection, job, "dead", "finished", 60.0) is None
        assert claims.begin_attempt(connection, job, "dead", job.parsed_request) is None
        assert jobs.find(connection, job.id).state == "running"


@on_both_databases
def test_a_job_ends_whatever_characters_its_error_has(engine: Engine) -> None:
    """PostgreSQL refuses NUL, with which a log may end after a loss of power, and both databases refuse what Python
    makes of a file's name that is not UTF-8: the job would hold its place for ever."""
    submit(engine, "a")
    assert claim(engine) == "a"
    with writing(engine) as connection:
        (job,) = jobs.of_sweep(connection, "a")
        ended = claims.end(connection, job, "me", "failed", 20.0, "caf\udce9.csv: is missing\0")
    assert ended is not None
    assert (ended.state, ended.error) == ("failed", "caf\ufffd.csv: is missing\ufffd")


@on_both_databases
def test_what_a_lost_machine_ran_is_inherited_once(engine: Engine) -> None:
    submit(engine, "a")
    with writing(engine) as connection:
        for service, beat in (("dead", 5.0), ("older", 1.0)):
            connection.execute(insert(tables.services).values(id=service, host="gone", pid=1, started=1, beat=beat))
        assert claims.claim(connection, Queue(), "dead", "gone", 10.0) is not None
    with writing(engine) as connection:
        assert last_beat(connection, "gone") == 5.0
        assert last_beat(connection, "never") is None
        assert claims.orphans(connection, 2.0) == []
        (job,) = claims.orphans(connection, 50.0)
        inherited = claims.adopt(connection, job, "new", "here")
        assert inherited is not None
        assert (inherited.service, inherited.host, inherited.state) == ("new", "here", "running")
        assert claims.adopt(connection, job, "third", "there") is None
        assert claims.end(connection, job, "dead", "finished", 60.0) is None


def test_a_name_that_is_taken_gets_a_number_unless_it_was_asked_for(engine: Engine) -> None:
    assert submit(engine, "digits-1").sweep == "digits-1"
    again = submit(engine, "digits-1")
    assert again.sweep == again.request["name"] == "digits-1-2"
    with pytest.raises(UserError, match="a sweep digits-1 already exists; choose another --name"):
        submit(engine, "digits-1", request=Run(conf="digits", name="digits-1"))


def test_the_name_of_a_cancelled_sweep_is_free_again(engine: Engine) -> None:
    job = submit(engine, "mine", request=Run(conf="digits", name="mine"))
    with writing(engine) as connection:
        assert jobs.cancel(connection, job.id, 2.0).state == "cancelled"
        assert jobs.creator(connection, "mine") is None
    assert submit(engine, "mine", request=Run(conf="digits", name="mine")).sweep == "mine"


def test_so_many_of_a_user_may_wait(engine: Engine) -> None:
    for number in range(3):
        submit(engine, f"a{number}")
    with engine.connect() as connection:
        with pytest.raises(UserError, match=r"ada has 3 sweeps in the queue.*queue\.waiting_per_user"):
            jobs.check_waiting(connection, "ada", 3)
        jobs.check_waiting(connection, "ada", 4)
        jobs.check_waiting(connection, "bob", 3)


def test_only_what_waits_can_be_cancelled_or_moved(engine: Engine) -> None:
    job = submit(engine, "a")
    with writing(engine) as connection:
        assert jobs.prioritise(connection, job.id, 7).priority == 7
    claim(engine)
    for act in (lambda connection: jobs.cancel(connection, job.id, 2.0), lambda c: jobs.prioritise(c, job.id, 1)):
        with writing(engine) as connection, pytest.raises(UserError, match="is not queued: it is running"):
            act(connection)
    with writing(engine) as connection, pytest.raises(UnknownName, match="there is no job 99"):
        jobs.find(connection, 99)


def test_who_asks_for_the_end_cancels_what_waits_and_is_remembered_for_what_runs(engine: Engine) -> None:
    first, second = submit(engine, "a"), submit(engine, "b")
    claim(engine)
    with writing(engine) as connection:
        assert jobs.request_stop(connection, first.id, 30.0).stop_asked == 30.0
        assert jobs.request_stop(connection, first.id, 40.0).stop_asked == 30.0
        assert jobs.request_stop(connection, second.id, 30.0).state == "cancelled"


@on_both_databases
def test_what_is_cancelled_while_a_service_claims_it_does_not_start(engine: Engine) -> None:
    job, claimed = submit(engine, "a"), list[str | None]()
    service = threading.Thread(target=lambda: claimed.append(claim(engine)))
    with writing(engine) as connection:
        assert jobs.request_stop(connection, job.id, 5.0).state == "cancelled"
        service.start()
        time.sleep(0.3)  # it has read that the job waits
    service.join()
    assert claimed == [None]
    with engine.connect() as connection:
        assert jobs.find(connection, job.id).state == "cancelled"


def test_a_request_is_the_command_line_that_does_it() -> None:
    run = Run(conf="digits", overrides=["train.lr=0.1", "~space.x"], name="mine")
    assert run.arguments() == ["run", "conf=digits", "train.lr=0.1", "~space.x", "--name=mine"]
    assert Extend(sweep="mine", changes=["search.num_trials=4"]).arguments() == [
        "extend",
        "mine",
        "search.num_trials=4",
    ]
    retrain = read_request({"verb": "retrain", "sweep": "mine", "register": "model", "merged": True, "trial": "3"})
    assert retrain.arguments() == [
        *("retrain", "mine", "--trial=3", "--register=model", "--alias=champion", "--merged"),
    ]
    assert isinstance(retrain, Retrain)
    assert Retrain(sweep="mine", alias=None).arguments() == ["retrain", "mine", "--alias="]


@pytest.mark.parametrize(
    "document",
    [
        {"verb": "run", "conf": "digits", "overrides": ["--config-dir=/tmp"]},
        {"verb": "run", "conf": "../secret"},
        {"verb": "run", "conf": "/etc/some.yaml"},
        {"verb": "run", "conf": "digits", "name": "--debug"},
        {"verb": "resume", "sweep": "-x"},
        {"verb": "resume", "sweep": "a/../b"},
        {"verb": "extend", "sweep": "a", "changes": ["--folder=/"]},
        {"verb": "retrain", "sweep": "a", "register": "--folder"},
        {"verb": "retrain", "sweep": "a", "unknown": 1},
        {"verb": "drop", "sweep": "a"},
    ],
)
def test_no_request_is_an_option_of_the_command_line_or_a_path(document: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        read_request(document)
