"""Alembic migrations of the service's database, with one file in ``versions/`` for each version.

For a new version change the tables in ``sweeps.service.database.tables``, add ``versions/version_N.py`` whose
``upgrade`` makes the same change, and raise ``HEAD``; a test compares the two.
"""

HEAD = 3
"""Version of the tables in ``sweeps.service.database.tables``."""
