"""Tables of release 0.1.0, which did not store the version."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=300), nullable=False),
        sa.Column("channel", sa.String(length=100), nullable=False),
        sa.Column("message", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next", sa.Float(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key", "channel"),
    )
    op.create_index("ix_deliveries_state", "deliveries", ["state"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("verb", sa.String(length=16), nullable=False),
        sa.Column("sweep", sa.String(length=200), nullable=False),
        sa.Column("makes", sa.String(length=200), nullable=True),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("user", sa.String(length=100), nullable=False),
        sa.Column("project", sa.String(length=100), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("submitted", sa.Float(), nullable=False),
        sa.Column("started", sa.Float(), nullable=True),
        sa.Column("ended", sa.Float(), nullable=True),
        sa.Column("end_by", sa.Float(), nullable=True),
        sa.Column("schedule", sa.String(length=100), nullable=True),
        sa.Column("due", sa.Float(), nullable=True),
        sa.Column("service", sa.String(length=32), nullable=True),
        sa.Column("host", sa.String(length=255), nullable=True),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("stop_asked", sa.Float(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("told", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("makes"),
    )
    op.create_index("ix_jobs_project", "jobs", ["project"], unique=False)
    op.create_index("ix_jobs_state", "jobs", ["state"], unique=False)
    op.create_index("ix_jobs_sweep", "jobs", ["sweep"], unique=False)
    op.create_index("ix_jobs_told", "jobs", ["told"], unique=False)
    op.create_index("ix_jobs_user", "jobs", ["user"], unique=False)
    op.create_index("jobs_waiting", "jobs", ["state", "priority", "id"], unique=False)
    op.create_table(
        "nights",
        sa.Column("schedule", sa.String(length=100), nullable=False),
        sa.Column("due", sa.Float(), nullable=False),
        sa.Column("sweep", sa.String(length=200), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("metric", sa.String(length=200), nullable=False),
        sa.Column("mode", sa.String(length=3), nullable=False),
        sa.Column("tried", sa.String(length=32), nullable=True),
        sa.Column("point", sa.JSON(), nullable=True),
        sa.Column("verdict", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("best", sa.Float(), nullable=True),
        sa.Column("champion", sa.Float(), nullable=True),
        sa.Column("challenger", sa.String(length=32), nullable=True),
        sa.Column("repeats", sa.String(length=200), nullable=True),
        sa.Column("champions", sa.JSON(), nullable=True),
        sa.Column("challengers", sa.JSON(), nullable=True),
        sa.Column("noise", sa.Float(), nullable=True),
        sa.Column("version", sa.String(length=32), nullable=True),
        sa.Column("wall_s", sa.Float(), nullable=True),
        sa.Column("cost", sa.Float(), nullable=True),
        sa.Column("decided", sa.Float(), nullable=True),
        sa.Column("reported", sa.Float(), nullable=True),
        sa.Column("holder", sa.String(length=32), nullable=True),
        sa.PrimaryKeyConstraint("schedule", "due"),
    )
    op.create_index("ix_nights_repeats", "nights", ["repeats"], unique=False)
    op.create_index("ix_nights_sweep", "nights", ["sweep"], unique=False)
    op.create_table(
        "schedules",
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("decided", sa.Float(), nullable=False),
        sa.Column("cron", sa.String(length=200), nullable=False),
        sa.Column("timezone", sa.String(length=100), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "services",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("started", sa.Float(), nullable=False),
        sa.Column("beat", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("label", sa.String(length=200), nullable=False),
        sa.Column("user", sa.String(length=100), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("projects", sa.JSON(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("expires", sa.Float(), nullable=True),
        sa.Column("revoked", sa.Float(), nullable=True),
        sa.Column("used", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("digest"),
    )
    op.create_table(
        "firings",
        sa.Column("schedule", sa.String(length=100), nullable=False),
        sa.Column("due", sa.Float(), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("decided", sa.Float(), nullable=False),
        sa.Column("service", sa.String(length=32), nullable=True),
        sa.Column("job", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("schedule", "due"),
    )
    op.create_table(
        "sessions",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("expires", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["token"],
            ["tokens.id"],
        ),
        sa.PrimaryKeyConstraint("digest"),
    )
