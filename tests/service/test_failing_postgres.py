"""The whole service, with a real PostgreSQL that hangs, dies, fails over, or is behind a pooler."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import requests
from postgres_cluster import Bouncer, Cluster
from test_queue import claimed_by_many, submit
from test_serve import Service
from waiting import wait_until

from sweeps.service.database.engine import open_database, writing
from sweeps.service.queue import jobs
from sweeps.service.queue.jobs import Job

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def finished_job(url: str) -> Job:
    """A job of a new database that nobody will start."""
    engine = open_database(url)
    job = submit(engine, "mine")
    with writing(engine) as connection:
        jobs.cancel(connection, job.id, 2.0)
    engine.dispose()
    return job


@contextmanager
def _hanging(cluster: Cluster) -> Iterator[None]:
    cluster.hang()
    try:
        yield
    finally:
        cluster.go_on()


@contextmanager
def _locked(cluster: Cluster) -> Iterator[None]:
    with cluster.connect() as other:
        other.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
        yield
        other.rollback()


def _is_ready(service: Service) -> bool:
    return requests.get(f"{service.url}/api/v1/ready", timeout=5).status_code == 200


@pytest.mark.parametrize("trouble", [_hanging, _locked])
def test_a_postgresql_that_hangs_is_noticed_outlived_and_does_not_keep_the_service_from_ending(
    working_folder: Path, cluster: Cluster, trouble: AbstractContextManager[None]
) -> None:
    def ask(number: int) -> tuple[int, str | None, float]:
        began = time.monotonic()
        path = ("jobs", "sweeps", "schedules", "firings")[number % 4]
        answer = requests.get(f"{service.url}/api/v1/{path}", timeout=60)
        return answer.status_code, answer.headers.get("Retry-After"), time.monotonic() - began

    def ask_as_it_ends(number: int) -> None:
        with contextlib.suppress(requests.ConnectionError):  # of a client that came too late
            ask(number)

    job = finished_job(cluster.url)
    with Service(working_folder, SWEEPS_DATABASE=cluster.url) as service:
        assert {ask(number)[0] for number in range(4)} == {200}
        with trouble(cluster):  # type: ignore[operator]
            wait_until(lambda: not _is_ready(service), 8)  # though nobody has asked for anything
            with ThreadPoolExecutor(20) as clients:
                found = list(clients.map(ask, range(20)))
            assert requests.get(f"{service.url}/api/v1/health", timeout=5).elapsed.total_seconds() < 1
        needing = [each for number, each in enumerate(found) if number % 4 == 0 or trouble is _hanging]
        assert {status for status, _, _ in needing} == {503}, found
        assert all(after is not None for _, after, _ in needing)
        assert max(seconds for _, _, seconds in found) < 5.0, found
        wait_until(lambda: _is_ready(service), 20)
        assert service.job(job.id)["sweep"] == "mine"
        with trouble(cluster):  # type: ignore[operator]
            wait_until(lambda: not _is_ready(service), 8)
            threads = [threading.Thread(target=ask_as_it_ends, args=[number]) for number in range(8)]
            for thread in threads:
                thread.start()
            began = time.monotonic()
            assert service.end(signal.SIGTERM) == 0
            assert time.monotonic() - began < 10.0


def test_after_a_failover_the_service_goes_on_with_the_new_primary(working_folder: Path, cluster: Cluster) -> None:
    with Cluster(cluster) as standby:
        job = finished_job(cluster.url)
        hosts = f"host=127.0.0.1:{cluster.port}&host=127.0.0.1:{standby.port}"
        with Service(working_folder, SWEEPS_DATABASE=f"postgresql+psycopg://sweeps@/postgres?{hosts}") as service:
            with cluster.connect() as primary:
                (sent,) = primary.execute("SELECT pg_current_wal_lsn()").fetchone() or ("",)
            with standby.connect() as other:
                behind = "SELECT pg_last_wal_replay_lsn() < %s::pg_lsn"
                wait_until(lambda: other.execute(behind, [sent]).fetchone() == (False,), 20)
            cluster.kill()
            wait_until(lambda: not _is_ready(service), 20)
            standby.promote()
            wait_until(lambda: _is_ready(service), 30)
            assert service.job(job.id)["sweep"] == "mine"


def test_behind_a_pooler_in_transaction_mode_each_job_is_claimed_once_and_requests_are_answered(
    working_folder: Path, cluster: Cluster
) -> None:
    bouncer = Bouncer(cluster.port)
    try:
        engine = open_database(bouncer.url)
        for number in range(20):
            submit(engine, f"s{number}")
        assert sorted(claimed_by_many(bouncer.url)) == sorted(f"s{number}" for number in range(20))
        engine.dispose()
        with Service(working_folder, SWEEPS_DATABASE=bouncer.url) as service, ThreadPoolExecutor(20) as clients:

            def ask(_: int) -> int:
                return requests.get(f"{service.url}/api/v1/jobs", timeout=30).status_code

            assert set(clients.map(ask, range(200))) == {200}
    finally:
        bouncer.close()
