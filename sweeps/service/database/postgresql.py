"""Connections to PostgreSQL with short timeouts for locks, hanging servers, lost machines, and the connection pool.
They work through PgBouncer in transaction mode, and find the new primary after a failover."""

from __future__ import annotations

import time
from collections.abc import Generator
from functools import cache
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import ExceptionContext

from sweeps.service.database.timeouts import timeout_s

CONNECT_S = 2
"""Seconds for a new connection to one host; libpq's minimum."""
POOL_S = 1.0
"""Maximum seconds that a thread waits for a free connection of the pool."""
PING_S = 0.8
"""Seconds for the answer to a ping, before a connection of the pool is used again."""
LATER_S = 0.5
"""Seconds that the client waits in addition to the server's own timeout."""
IDLE_IN_TRANSACTION_S = 60
"""Seconds after which the server ends an idle transaction, whose client machine may be gone with its locks held."""
MAX_CONNECTIONS = 30
READ_ONLY = "25006"
"""SQLSTATE of a write to a standby that was the primary when the connection was made."""


def postgresql_engine(url: URL) -> Engine:
    """Return an engine for PostgreSQL through psycopg. Parameters in the address take precedence over ours."""
    ours: dict[str, Any] = {
        "connect_timeout": CONNECT_S,
        "tcp_user_timeout": 1000 * CONNECT_S,
        "target_session_attrs": "read-write",  # the primary among several hosts, also after a failover
    }
    arguments = {name: value for name, value in ours.items() if name not in url.query}
    # A pooler may give the next transaction another connection, in which these statements are not prepared.
    arguments["prepare_threshold"] = None
    engine = create_engine(
        url, connect_args=arguments, pool_pre_ping=True, pool_timeout=POOL_S, max_overflow=MAX_CONNECTIONS - 5
    )
    event.listen(engine, "do_connect", _connect)
    event.listen(engine, "begin", _limit_transaction)
    event.listen(engine, "handle_error", _leave_standby)
    return engine


@cache
def _connection_class() -> Any:
    import psycopg  # an extra
    from psycopg.waiting import Ready

    def limited(generator: Generator[Any, Any, Any], began: float, most_s: float) -> Generator[Any, Any, Any]:
        """Run a psycopg generator, and raise an error when it has waited too long."""
        try:
            wanted = next(generator)
            while True:
                ready = yield wanted
                # Read each time: the process may have been told to end.
                if ready == Ready.NONE and time.monotonic() - began > min(most_s, timeout_s() + LATER_S):
                    raise psycopg.OperationalError("the server does not answer")
                wanted = generator.send(ready)
        except StopIteration as done:
            return done.value

    class LimitedConnection(psycopg.Connection[Any]):
        """A connection that closes itself if the server does not answer in time. The server's own timeouts do not help
        if the server is suspended."""

        def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
            most_s = PING_S if self.autocommit else timeout_s() + LATER_S  # SQLAlchemy pings outside of a transaction
            try:
                return super().wait(limited(gen, time.monotonic(), most_s), *args, **options)
            except psycopg.OperationalError:
                if self.pgconn.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:
                    self.close()  # an answer to the failed statement may still arrive
                raise

    return LimitedConnection


def _connect(_dialect: Any, _record: Any, arguments: tuple[Any, ...], parameters: dict[str, Any]) -> Any:
    return _connection_class().connect(*arguments, **parameters)


def _limit_transaction(connection: Connection) -> None:
    """Set the server's timeouts for one transaction, so that the server gives up before the client. A pooler may use
    another connection for the next transaction."""
    milliseconds = round(1000 * timeout_s())
    limits = {
        "lock_timeout": milliseconds,
        "statement_timeout": milliseconds,
        "idle_in_transaction_session_timeout": 1000 * IDLE_IN_TRANSACTION_S,
    }
    set_config = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in limits.items())
    connection.exec_driver_sql(f"SELECT {set_config}")


def _leave_standby(context: ExceptionContext) -> None:
    """Drop the pool's connections to a server that has become a standby."""
    if getattr(context.original_exception, "sqlstate", None) == READ_ONLY:
        context.is_disconnect = True
