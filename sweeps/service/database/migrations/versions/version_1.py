"""Release 0.1.0, which did not store the version: its databases have these tables already, and a new one is made from
``tables``."""

revision = "1"
down_revision = None


def upgrade() -> None:
    """Change nothing."""
