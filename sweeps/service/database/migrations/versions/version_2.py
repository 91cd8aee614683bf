"""Table of the releases that wrote each version."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Add the table of versions."""
    op.create_table(
        "schema_versions",
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("release", sa.String(100), nullable=False),
        sa.Column("since", sa.Float, nullable=False),
    )
