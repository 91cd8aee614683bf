"""The server that forks the workers of trainings, started before the tests need it."""

from __future__ import annotations

import os

from fork_server import start_server


def pytest_collection_finish() -> None:
    """Let the server import its libraries beside the first tests, and not within the time limit of one of them. A test
    process alone starts it when a test needs it."""
    if "PYTEST_XDIST_TESTRUNUID" in os.environ:
        start_server()
