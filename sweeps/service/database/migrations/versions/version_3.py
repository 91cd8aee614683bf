"""Indexes for the newest jobs of each state, user, project and schedule."""

from __future__ import annotations

from alembic import op

revision = "3"
down_revision = "2"

NEW = {
    "jobs_by_state": ["state", "id"],
    "jobs_by_user": ["user", "state", "id"],
    "jobs_by_project": ["project", "state", "id"],
    "jobs_by_schedule": ["schedule", "state", "id"],
    "jobs_started": ["user", "started"],
    "jobs_ended": ["ended"],
}


def upgrade() -> None:
    """Add the indexes, and drop those that they replace."""
    for name in ("ix_jobs_user", "ix_jobs_project", "ix_jobs_state"):
        op.drop_index(name, "jobs")
    for name, columns in NEW.items():
        op.create_index(name, "jobs", columns)
