"""A PostgreSQL that hangs: requests are answered 503 within seconds, the service is not ready, and it goes on when the
server is well again. ``test_failing_postgres.py`` has the same with the whole service and a server that is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hanging_proxy import HangingProxy
from postgres import EMPTY, Postgres
from serving import API, Api, new_api
from sqlalchemy import Engine, make_url, text
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from sweeps.service.database import postgresql, storage_errors
from sweeps.service.database.engine import open_database, writing
from sweeps.service.database.storage_errors import is_unavailable
from sweeps.service.database.timeouts import waiting_at_most

ANSWERED_WITHIN_S = 5.0


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("sweeps.service.auth.middleware.SERVICE_S", 1.0)  # the whole service waits as users' does
    yield
    storage_errors.outage.clear()


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.database(EMPTY)


@pytest.fixture
def proxy(url: str) -> Iterator[HangingProxy]:
    port = make_url(url).port
    assert port is not None
    proxy = HangingProxy(port)
    yield proxy
    proxy.close()


@pytest.fixture
def api(url: str, proxy: HangingProxy, tmp_path: Path) -> Iterator[Api]:
    through = make_url(url).set(port=proxy.port).render_as_string(hide_password=False)
    api = new_api(tmp_path, f"database={through}")
    api.submit("mine")
    yield api
    proxy.hangs = False
    api.close()


@contextmanager
def locked(url: str, table: str) -> Iterator[None]:
    """Somebody's transaction, such as a migration by hand, holds a table."""
    with closing(psycopg.connect(url.replace("+psycopg", ""))) as other:
        other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    began = time.monotonic()
    return call(), time.monotonic() - began


@pytest.mark.parametrize("trouble", ["jobs", pytest.param("tokens", marks=pytest.mark.slow), "hangs"])
def test_twenty_requests_to_a_postgresql_that_hangs_are_answered_503_within_5_s(
    api: Api, url: str, proxy: HangingProxy, trouble: str
) -> None:
    token = api.token("ada", "admin")
    client = api.client(token, raise_server_exceptions=False)
    assert client.get(f"{API}/jobs").status_code == 200

    def ask(number: int) -> tuple[Any, float]:
        return timed(lambda: client.post(f"{API}/jobs/1/cancel") if number % 2 else client.get(f"{API}/jobs"))

    with client, ThreadPoolExecutor(20) as clients:
        if trouble == "hangs":
            proxy.hangs = True
            found = list(clients.map(ask, range(20)))
            not_ready = client.get(f"{API}/ready")
            proxy.hangs = False
        else:
            with locked(url, trouble):
                found = list(clients.map(ask, range(20)))
                with pytest.raises(OperationalError), waiting_at_most(0.1):  # other tables work
                    api.service.heartbeat._write(api.service.clock.now())
                not_ready = client.get(f"{API}/ready")
        assert {answer.status_code for answer, _ in found} == {503}, found
        assert all(int(answer.headers["Retry-After"]) >= 1 for answer, _ in found)
        assert max(seconds for _, seconds in found) < ANSWERED_WITHIN_S
        assert not_ready.status_code == 503
        assert client.get(f"{API}/jobs").status_code == 200
        assert client.post(f"{API}/jobs/1/cancel").status_code == 200


def test_who_needs_a_connection_while_others_hold_all_of_them_waits_a_second(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "MAX_CONNECTIONS", 5)
    monkeypatch.setattr(postgresql, "POOL_S", 0.1)
    engine = open_database(url)
    held = [engine.connect() for _ in range(5)]
    with pytest.raises(SQLAlchemyError) as refused:
        engine.connect()
    assert is_unavailable(refused.value)
    for each in held:
        each.close()
    engine.dispose()


def test_a_server_without_free_connections_is_an_unavailable_storage(url: str) -> None:
    engine = open_database(url)
    with engine.connect() as connection:
        connection.execute(text("ALTER ROLE sweeps CONNECTION LIMIT -1"))
    engine.dispose()
    name = f"few{time.time_ns()}"
    with closing(psycopg.connect(url.replace("+psycopg", ""), autocommit=True)) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'few' CONNECTION LIMIT 1")
        few = make_url(url).set(username=name, password="few").render_as_string(hide_password=False)
        with closing(psycopg.connect(few.replace("+psycopg", ""))):
            limited = postgresql.postgresql_engine(make_url(few))
            with pytest.raises(OperationalError, match="too many connections") as refused:
                limited.connect()
            assert is_unavailable(refused.value)
            limited.dispose()
        admin.execute(f"DROP ROLE {name}")


def test_a_transaction_that_says_nothing_loses_its_locks(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine of a service may go in the middle of a transaction; the server would learn of it hours later."""
    gone, other = open_database(url), open_database(url)
    monkeypatch.setattr(postgresql, "IDLE_IN_TRANSACTION_S", 0.5)
    with gone.connect() as silent:
        silent.execute(text("LOCK TABLE jobs IN EXCLUSIVE MODE"))
        with waiting_at_most(10.0), writing(other) as connection:
            connection.execute(text("LOCK TABLE jobs IN EXCLUSIVE MODE"))
        with pytest.raises(SQLAlchemyError) as ended:
            silent.execute(text("SELECT 1"))
        assert is_unavailable(ended.value)
    for engine in (gone, other):
        engine.dispose()


def test_a_service_does_not_work_with_a_standby_and_leaves_a_server_that_has_become_one(url: str) -> None:
    engine = open_database(url)
    with closing(psycopg.connect(url.replace("+psycopg", ""), autocommit=True)) as admin:
        name = make_url(url).database
        with engine.connect() as connection:  # stays in the pool
            pid = _backend(connection.engine)
        admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        strange = postgresql.postgresql_engine(make_url(url))
        with pytest.raises(OperationalError, match="read-only") as refused:
            strange.connect()
        assert is_unavailable(refused.value)
        with pytest.raises(SQLAlchemyError) as written:
            _write_to_standby(engine)
        assert is_unavailable(written.value)
        admin.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        assert _backend(engine) != pid
    engine.dispose()
    strange.dispose()


def _write_to_standby(engine: Engine) -> None:
    with writing(engine) as connection:
        connection.execute(text("SET LOCAL transaction_read_only = on"))  # as its transactions are
        connection.execute(text("DELETE FROM jobs"))


def _backend(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
