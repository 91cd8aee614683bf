"""The service's database: which firings have run, which sweeps wait, who may do what. SQLite on one machine; PostgreSQL
where several services share it. Times are seconds since 1970 (UTC), since SQLite's dates lose their zone.

Two services write the same tables at once and each may die between any two statements: what must happen once is one
transaction, and what must not happen twice is a unique key.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
    func,
    make_url,
    select,
)
from sqlalchemy.exc import SQLAlchemyError

from sweeps.errors import ConfigError
from sweeps.files import make_private
from sweeps.redact import shown
from sweeps.service.schema_version import bring_forward, is_current

BUSY_S = 30.0
"""Seconds that a writer to SQLite waits for another."""

REQUESTS_WAIT_S = 5.0
"""And one that answers a request, for which somebody waits."""
_waits_s: ContextVar[float] = ContextVar("waits_s", default=BUSY_S)

MAKING_TABLES, CLAIMING = 0x53574545, 0x53574546
"""Keys of locks: any numbers, the same in every service."""

tables = MetaData()

services = Table(
    "services",
    tables,
    Column("id", String(32), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started", Float, nullable=False),
    Column("beat", Float, nullable=False, doc="When it last gave a sign of life."),
)
"""The processes that serve from this database, dead ones too."""

jobs = Table(
    "jobs",
    tables,
    Column("id", Integer, primary_key=True),
    Column("verb", String(16), nullable=False, doc="run, resume, extend, retrain or reproduce."),
    Column("sweep", String(200), nullable=False, index=True, doc="Name of the sweep that it makes or goes on with."),
    Column("makes", String(200), unique=True, doc="The same where it makes a sweep: no name is given twice."),
    Column("request", JSON, nullable=False, doc="What was asked: conf, overrides, changes and the like."),
    Column("user", String(100), nullable=False),
    Column("project", String(100), nullable=False),
    Column("priority", Integer, nullable=False, default=0, doc="The higher starts first; equals in their order."),
    Column("state", String(16), nullable=False, doc="queued, running, or as it ended."),
    Column("submitted", Float, nullable=False),
    Column("started", Float),
    Column("ended", Float),
    Column("end_by", Float, doc="When it must have ended: it is stopped then."),
    Column("schedule", String(100)),
    Column("due", Float, doc="The firing of that schedule which it is."),
    Column("service", String(32), doc="The service that runs it."),
    Column("host", String(255)),
    Column("pid", Integer, doc="Of its driver, on that host."),
    Column("attempts", Integer, nullable=False, default=0, doc="How often its driver was started."),
    Column("stop_asked", Float, doc="When somebody wanted its end: it is not resumed then."),
    Column("error", Text, doc="Why it failed or did not start, in a sentence."),
    Column("told", Float, index=True, doc="When the messages that tell of its end were written."),
    Index("jobs_waiting", "state", "priority", "id"),
    Index("jobs_by_state", "state", "id"),
    Index("jobs_by_user", "user", "state", "id"),
    Index("jobs_by_project", "project", "state", "id"),
    Index("jobs_by_schedule", "schedule", "state", "id"),
    Index("jobs_started", "user", "started"),
    Index("jobs_ended", "ended"),
)
"""Sweeps that were submitted: by people, by the API and by schedules."""

schedules = Table(
    "schedules",
    tables,
    Column("name", String(100), primary_key=True),
    Column("decided", Float, nullable=False, doc="Of all firings up to this time it is decided what becomes of them."),
    Column("cron", String(200), nullable=False),
    Column("timezone", String(100), nullable=False),
    Column("enabled", Boolean, nullable=False),
)
"""How far each schedule has come. Who decides about a firing holds its row: two services never decide at once."""

firings = Table(
    "firings",
    tables,
    Column("schedule", String(100), primary_key=True),
    Column("due", Float, primary_key=True, doc="The time that the cron line names, before any jitter."),
    Column("outcome", String(16), nullable=False, doc="queued, skipped or missed."),
    Column("decided", Float, nullable=False),
    Column("service", String(32), doc="Which service decided."),
    Column("job", Integer, ForeignKey("jobs.id")),
    Column("reason", Text),
)
"""What became of every firing, for ``keep_firings_days``. Its row and its job's are written in one
transaction: it runs exactly once."""

tokens = Table(
    "tokens",
    tables,
    Column("id", Integer, primary_key=True),
    Column("digest", String(64), nullable=False, unique=True, doc="SHA-256 of the token, which is kept nowhere."),
    Column("label", String(200), nullable=False),
    Column("user", String(100), nullable=False),
    Column("role", String(16), nullable=False, doc="read, run or admin."),
    Column("projects", JSON, nullable=False, doc="Whose sweeps it reaches besides its user's own."),
    Column("created", Float, nullable=False),
    Column("expires", Float),
    Column("revoked", Float),
    Column("used", Float, doc="When it was last used, to the minute."),
)

sessions = Table(
    "sessions",
    tables,
    Column("digest", String(64), primary_key=True, doc="SHA-256 of the cookie, which the browser alone has."),
    Column("token", Integer, ForeignKey("tokens.id"), nullable=False, doc="With which it began, and ends."),
    Column("expires", Float, nullable=False),
)
"""Browsers that are signed in."""

nights = Table(
    "nights",
    tables,
    Column("schedule", String(100), primary_key=True),
    Column("due", Float, primary_key=True),
    Column("sweep", String(200), nullable=False, index=True),
    Column("settings", JSON, nullable=False, doc="The schedule's ``nights`` as they were when the night began."),
    Column("metric", String(200), nullable=False),
    Column("mode", String(3), nullable=False),
    Column("tried", String(32), doc="Version of the champion that was tried again."),
    Column("point", JSON, doc="Its values in tonight's space."),
    Column("verdict", String(16), nullable=False, doc="See ``Verdict``; running and repeating are none yet."),
    Column("reason", Text, doc="The verdict in a sentence."),
    Column("best", Float, doc="Tonight's best value."),
    Column("champion", Float, doc="The champion's value on tonight's data."),
    Column("challenger", String(32), doc="Number of tonight's best trial, where it is not the champion."),
    Column("repeats", String(200), index=True, doc="Name of the sweep that trained both again."),
    Column("champions", JSON, doc="Values of the champion's repeats."),
    Column("challengers", JSON, doc="Values of the challenger's repeats."),
    Column("noise", Float, doc="Standard deviation between equal trainings by which it was judged."),
    Column("version", String(32), doc="Version of the model that is champion afterwards."),
    Column("wall_s", Float, doc="Seconds that the night took, with its repeats."),
    Column("cost", Float, doc="In the currency of the prices; 0 without prices."),
    Column("decided", Float, doc="When its verdict was found."),
    Column("reported", Float, doc="When its figure was in its sweep's report."),
    Column("holder", String(32), doc="Which service is about to judge it, so that no other does."),
)
"""What each night of a schedule has brought."""

deliveries = Table(
    "deliveries",
    tables,
    Column("id", Integer, primary_key=True),
    Column("key", String(300), nullable=False, doc="What is told of: the same is told once to each channel."),
    Column("channel", String(100), nullable=False),
    Column("message", JSON, nullable=False),
    Column("state", String(16), nullable=False, index=True, doc="waiting, sent or given up."),
    Column("attempts", Integer, nullable=False, default=0),
    Column("next", Float, nullable=False, doc="When it is tried again."),
    Column("error", Text, doc="What the last attempt said, without secrets."),
    Column("created", Float, nullable=False),
    UniqueConstraint("key", "channel"),
)
"""Notifications on their way."""

schema_versions = Table(
    "schema_versions",
    tables,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column(
        "release", String(100), nullable=False, doc="The release of ray-sweeps that has brought it to this version."
    ),
    Column("since", Float, nullable=False),
)
"""The versions that the database has had; see ``sweeps.service.migrations``."""


def open_database(url: str) -> Engine:
    """Open the database; a new one gets its tables, and one of an earlier release is brought forward.

    Args:
        url: As SQLAlchemy takes it: ``sqlite:///outputs/service.db``, ``postgresql+psycopg://...``.

    Raises:
        ConfigError: It cannot be opened, or lacks columns.
        NewerVersion: A later release has brought it forward.
    """
    try:
        return _open(url)
    except (SQLAlchemyError, OSError, ModuleNotFoundError) as error:
        trouble = str(error).splitlines()[0]
        raise ConfigError(f"database={shown(url)}: cannot be opened ({shown(trouble)})") from None


def database_exists(url: str) -> bool:
    """Whether there is a file, for SQLite; of a server that is not asked."""
    parts = make_url(url)
    return parts.get_backend_name() != "sqlite" or Path(str(parts.database)).is_file()


def _open(url: str) -> Engine:
    parts = make_url(url)
    if parts.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": BUSY_S, "check_same_thread": False})
        if parts.database not in {None, "", ":memory:"}:
            file = Path(str(parts.database))
            file.parent.mkdir(parents=True, exist_ok=True)
            make_private(file)  # SQLite gives its journals the same mode
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        engine = create_engine(url, pool_pre_ping=True)
    try:
        with engine.connect() as connection:
            current = is_current(connection, tables, url)
        if not current:
            with writing(engine) as connection:
                lock(connection, MAKING_TABLES)  # two that find the same table missing would both make it
                bring_forward(connection, tables, url)
    except BaseException:
        engine.dispose()
        raise
    return engine


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes; it is done whole, or not at all. SQLite has one writer at a time."""
    with engine.connect().execution_options(sweeps_writes=True) as connection, connection.begin():
        yield connection


def wait_at_most(seconds: float) -> None:
    """Let this context's transactions wait so long for another writer to SQLite."""
    _waits_s.set(seconds)


def lock(connection: Connection, key: int) -> None:
    """Let one transaction at a time go beyond this point, until it ends. SQLite's writers are alone anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(key)))


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # `_begin_sqlite` begins; the module's own way begins too late to be safe
    _keep_journal_ahead(connection)
    for line in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {line}")


def _keep_journal_ahead(connection: Any) -> None:
    # A new file's journal changes once and for good; where another is at work in it then, SQLite fails at once
    # instead of waiting as it does for everything else.
    until = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    # A writer takes the lock before it reads: two that read first and then wrote would decide by the same state.
    writes = connection.get_execution_options().get("sweeps_writes", False)
    connection.exec_driver_sql(f"PRAGMA busy_timeout={1000 * _waits_s.get():.0f}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
