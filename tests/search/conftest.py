"""Settings of all tests of searches."""

from __future__ import annotations

import optuna
import pytest


@pytest.fixture(scope="session", autouse=True)
def _quiet() -> None:
    """Keep Optuna from logging every suggestion."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
