"""Schema of release 0.1.0, which did not store the version. There is nothing to change: its databases have these
tables, and new ones are created from ``tables``."""

revision = "1"
down_revision = None


def upgrade() -> None:
    """Change nothing."""
