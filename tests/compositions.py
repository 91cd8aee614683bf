"""Compositions of the small sweep of digits, which tests only read."""

from __future__ import annotations

from functools import cache

from sweeps.compose.composition import Composition
from sweeps.compose.hydra_composition import compose_sweep
from sweeps.compose.search_path import ConfSearchPath


@cache
def composed(*overrides: str) -> Composition:
    """Compose ``conf=digits``, once in each process of the tests."""
    return compose_sweep("digits", [*overrides], ConfSearchPath())
