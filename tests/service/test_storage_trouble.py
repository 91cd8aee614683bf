"""A database that is locked or full: requests are answered 503, it is said once, and the service goes on when it is
well again."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from serving import API, Api, new_api
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError
from waiting import wait_until

from sweeps.config.service import Log, Service
from sweeps.service.clock import Clock
from sweeps.service.database import storage_errors, timeouts
from sweeps.service.database.engine import open_database, writing
from sweeps.service.database.storage_errors import StorageOutage, is_unavailable
from sweeps.service.poller import Poller
from sweeps.service.queue.runner import JobRunner
from sweeps.service.service_log import PrivateRotatingFileHandler


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("sweeps.service.auth.middleware.SERVICE_S", 0.1)
    yield
    storage_errors.outage.clear()


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.chdir(tmp_path)
    with closing(new_api(tmp_path)) as api:
        api.submit("mine")
        yield api


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Another program is in the middle of a transaction that writes."""
    with closing(sqlite3.connect(folder / "service.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_a_locked_database_is_answered_503_with_when_to_ask_again_and_said_once(
    api: Api, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = api.client(raise_server_exceptions=False)
    with locked(tmp_path):
        for _ in range(5):
            answer = client.post(f"{API}/jobs/1/cancel")
            assert answer.status_code == 503
            assert int(answer.headers["Retry-After"]) >= 1
            assert "database is locked" in answer.json()["detail"]
            assert "SELECT" not in answer.text
        assert client.get(f"{API}/jobs").status_code == 200  # readers need no lock
        assert client.get(f"{API}/health").status_code == 200
        not_ready = client.get(f"{API}/ready")
        assert (not_ready.status_code, not_ready.json()["status"]) == (503, "not ready")
        page = client.post("/jobs/1/cancel")
        assert (page.status_code, "text/html" in page.headers["content-type"]) == (503, True)
    said = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.message.count("database is locked") for record in said] == [1], [each.message for each in said]
    assert client.post(f"{API}/jobs/1/cancel").status_code == 200


def test_it_is_ready_again_once_something_could_be_written(
    api: Api, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.service.queue.heartbeat.CHECK_EVERY_S", 0.0)
    client = api.client(raise_server_exceptions=False)
    with locked(tmp_path):
        client.post(f"{API}/jobs/1/cancel")
        assert client.get(f"{API}/ready").status_code == 503
    with caplog.at_level(logging.INFO):
        api.service.heartbeat.beat()
        api.service.heartbeat.beat()
    assert client.get(f"{API}/ready").json() == {"status": "ready", "trouble": None}
    assert sum("works again, after" in record.message for record in caplog.records) == 1


def test_a_part_that_fails_again_and_again_says_so_once_until_it_is_well(caplog: pytest.LogCaptureFixture) -> None:
    errors: list[Exception | None] = [ValueError("x"), ValueError("x"), None, ValueError("x"), ValueError("y"), None]
    looks = iter(errors)
    done: list[int] = []

    def look() -> None:
        error = next(looks, None)
        done.append(1)
        if error is not None:
            raise error

    poller = Poller("test", Clock(), look, 0.001)
    poller.start()
    wait_until(lambda: len(done) > len(errors), 20)
    poller.stop()
    said = [record for record in caplog.records if "failed and tries again" in record.message]
    assert [str(record.exc_info[1]) for record in said if record.exc_info] == ["x", "x", "y"]


def test_many_threads_that_meet_a_locked_database_say_so_once(
    api: Api, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts._Process, "most_s", 0.01)
    monkeypatch.setattr("sweeps.service.poller.Poller.is_stopping", False)
    runner: JobRunner = api.service.runner
    with locked(tmp_path):
        poller = Poller("runner", Clock(), runner.poll, 0.01)
        for _ in range(5):
            try:
                runner.poll()
            except OperationalError as error:
                poller._log(error)
            else:
                raise AssertionError("what is queued was claimed in a locked database")
    assert sum(record.levelno >= logging.WARNING for record in caplog.records) == 1


def test_a_full_disk_is_unavailable_storage_too(small_disk: Callable[[int], Path]) -> None:
    disk = open_database(f"sqlite:///{small_disk(600)}/service.db")

    def fill() -> None:
        for number in range(1000, 2000):
            with writing(disk) as connection:
                connection.exec_driver_sql("INSERT INTO schema_versions VALUES (?, ?, 0)", (number, "x" * 20_000))

    with pytest.raises(OperationalError) as full:
        fill()
    assert is_unavailable(full.value)
    disk.dispose()


def test_mistakes_of_ours_are_no_trouble_with_storage() -> None:
    engine = create_engine("sqlite://")
    with engine.connect() as connection, pytest.raises(OperationalError) as wrong:
        connection.exec_driver_sql("SELECT nothing FROM nowhere")
    assert not is_unavailable(wrong.value)
    assert StorageOutage().reason is None


def test_the_services_log_is_replaced_before_it_grows_too_large_and_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "service.log"
    handler = PrivateRotatingFileHandler(file, maxBytes=2000, backupCount=2)
    for number in range(200):
        handler.emit(logging.LogRecord("x", logging.INFO, "x", 1, f"line {number} {'x' * 80}", None, None))
    handler.close()
    files = sorted(tmp_path.glob("service.log*"))
    assert [each.name for each in files] == ["service.log", "service.log.1", "service.log.2"]
    assert all(each.stat().st_size <= 2000 and each.stat().st_mode & 0o777 == 0o600 for each in files)
    assert Service().log == Log(file=None, max_mib=10, files=5)
