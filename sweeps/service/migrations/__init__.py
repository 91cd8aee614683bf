"""Versions of the service's database, as Alembic's migrations: ``versions/`` has one file for each step forward.

A new version: change the tables in ``sweeps.service.database``, add ``versions/version_N.py`` whose ``upgrade`` makes
the same change, and raise ``HEAD``; a test compares the two.
"""

HEAD = 3
"""The version of the tables in ``sweeps.service.database``."""
