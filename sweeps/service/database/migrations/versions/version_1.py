"""Release 0.1.0, which did not store the version: its databases already have these tables, and a new one is created
from ``tables``."""

revision = "1"
down_revision = None


def upgrade() -> None:
    """Change nothing."""
