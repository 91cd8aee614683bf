"""The tables of the service's database: firings, queued and ended jobs, tokens, nights. Times are seconds since 1970
(UTC), since SQLite's dates lose their zone.

Several services may write the same tables, and each may die between any two statements: whatever must happen together
is one transaction, and whatever must not happen twice is protected by a unique key.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()

services = Table(
    "services",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started", Float, nullable=False),
    Column("beat", Float, nullable=False, doc="Time of the last heartbeat."),
)
"""Service processes that use this database, including dead ones."""

jobs = Table(
    "jobs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("verb", String(16), nullable=False, doc="run, resume, extend, retrain or reproduce."),
    Column("sweep", String(200), nullable=False, index=True, doc="Name of the sweep that the job makes or continues."),
    Column("makes", String(200), unique=True, doc="Unique name of the sweep, if the job makes one; otherwise null."),
    Column("request", JSON, nullable=False, doc="The submitted request: conf, overrides, changes and so on."),
    Column("user", String(100), nullable=False),
    Column("project", String(100), nullable=False),
    Column("priority", Integer, nullable=False, default=0, doc="Higher starts first."),
    Column("state", String(16), nullable=False, doc="queued, running, or the final state."),
    Column("submitted", Float, nullable=False),
    Column("started", Float),
    Column("ended", Float),
    Column("end_by", Float, doc="Deadline: the job is stopped then."),
    Column("schedule", String(100)),
    Column("due", Float, doc="Time of the schedule's firing that submitted the job."),
    Column("service", String(32), doc="Id of the service that runs the job."),
    Column("host", String(255)),
    Column("pid", Integer, doc="Process id of the driver on that host."),
    Column("attempts", Integer, nullable=False, default=0, doc="Number of times that the driver was started."),
    Column("stop_asked", Float, doc="When a stop was requested; the job is not restarted after that."),
    Column("error", Text, doc="Reason for a failure or for not starting, in a sentence."),
    Column("told", Float, index=True, doc="When the notifications about the job's end were queued."),
    Index("jobs_waiting", "state", "priority", "id"),
    Index("jobs_by_state", "state", "id"),
    Index("jobs_by_user", "user", "state", "id"),
    Index("jobs_by_project", "project", "state", "id"),
    Index("jobs_by_schedule", "schedule", "state", "id"),
    Index("jobs_started", "user", "started"),
    Index("jobs_ended", "ended"),
)
"""Submitted sweeps: from the API, the web pages and schedules."""

schedules = Table(
    "schedules",
    metadata,
    Column("name", String(100), primary_key=True),
    Column("decided", Float, nullable=False, doc="All firings up to this time have been handled."),
    Column("cron", String(200), nullable=False),
    Column("timezone", String(100), nullable=False),
    Column("enabled", Boolean, nullable=False),
)
"""Progress of each schedule. The service that handles a firing locks the row, so that no two services do so at once."""

firings = Table(
    "firings",
    metadata,
    Column("schedule", String(100), primary_key=True),
    Column("due", Float, primary_key=True, doc="Time given by the cron line, before any jitter."),
    Column("outcome", String(16), nullable=False, doc="queued, skipped or missed."),
    Column("decided", Float, nullable=False),
    Column("service", String(32), doc="Id of the service that handled the firing."),
    Column("job", Integer, ForeignKey("jobs.id")),
    Column("reason", Text),
)
"""Outcome of every firing, kept for ``keep_firings_days``. A firing's row and its job's row are written in one
transaction, so that it runs exactly once."""

tokens = Table(
    "tokens",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", String(64), nullable=False, unique=True, doc="SHA-256 of the token."),
    Column("label", String(200), nullable=False),
    Column("user", String(100), nullable=False),
    Column("role", String(16), nullable=False, doc="metrics, read, run or admin."),
    Column("projects", JSON, nullable=False, doc="Projects whose sweeps the token may access, besides its user's own."),
    Column("created", Float, nullable=False),
    Column("expires", Float),
    Column("revoked", Float),
    Column("used", Float, doc="Time of the last use, to the minute."),
)

sessions = Table(
    "sessions",
    metadata,
    Column("digest", String(64), primary_key=True, doc="SHA-256 of the cookie; only the browser has the cookie."),
    Column(
        "token", Integer, ForeignKey("tokens.id"), nullable=False, doc="Token that signed in; the session ends with it."
    ),
    Column("expires", Float, nullable=False),
)
"""Sessions of signed-in browsers."""

nights = Table(
    "nights",
    metadata,
    Column("schedule", String(100), primary_key=True),
    Column("due", Float, primary_key=True),
    Column("sweep", String(200), nullable=False, index=True),
    Column("settings", JSON, nullable=False, doc="The schedule's ``nights`` section at the start of the night."),
    Column("metric", String(200), nullable=False),
    Column("mode", String(3), nullable=False),
    Column("tried", String(32), doc="Version of the champion that was evaluated again."),
    Column("point", JSON, doc="The champion's parameters in tonight's space."),
    Column(
        "verdict", String(16), nullable=False, doc="Value of ``Verdict``; ``running`` and ``repeating`` are not final."
    ),
    Column("reason", Text, doc="Reason for the verdict, in a sentence."),
    Column("best", Float, doc="Best value of the night."),
    Column("champion", Float, doc="The champion's value on tonight's data."),
    Column("challenger", String(32), doc="Number of the night's best trial, if it is not the champion."),
    Column("repeats", String(200), index=True, doc="Name of the sweep that trains champion and challenger again."),
    Column("champions", JSON, doc="Values of the champion's repeats."),
    Column("challengers", JSON, doc="Values of the challenger's repeats."),
    Column("noise", Float, doc="Standard deviation between equal trainings, used for the verdict."),
    Column("version", String(32), doc="Version of the champion after the night."),
    Column("wall_s", Float, doc="Duration of the night in seconds, including the repeats."),
    Column("cost", Float, doc="Cost in the currency of the prices; 0 without prices."),
    Column("decided", Float, doc="Time of the verdict."),
    Column("reported", Float, doc="When the figure of the nights was added to the sweep's report."),
    Column("holder", String(32), doc="Id of the service that is working on the verdict; others leave the night alone."),
)
"""Result of each night of a schedule."""

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("key", String(300), nullable=False, doc="Identifies the event; each channel gets one message for it."),
    Column("channel", String(100), nullable=False),
    Column("message", JSON, nullable=False),
    Column("state", String(16), nullable=False, index=True, doc="waiting, sent or given up."),
    Column("attempts", Integer, nullable=False, default=0),
    Column("next", Float, nullable=False, doc="Time of the next attempt."),
    Column("error", Text, doc="Error of the last attempt, without secrets."),
    Column("created", Float, nullable=False),
    UniqueConstraint("key", "channel"),
)
"""Notifications that are queued, sent or given up."""

schema_versions = Table(
    "schema_versions",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("release", String(100), nullable=False, doc="The release of ray-sweeps that migrated to this version."),
    Column("since", Float, nullable=False),
)
"""Versions that the database has had; see ``sweeps.service.database.migrations``."""
