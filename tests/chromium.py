"""Chromium as Debian has it."""

from __future__ import annotations

import shutil

import pytest

PROGRAMS = ("chromium-headless-shell", "chromium")
"""The shell, which has no windows, takes two fifths less processor time."""


def chromium() -> str:
    """Path of the program; without one the test is skipped."""
    found = next((path for name in PROGRAMS if (path := shutil.which(name)) is not None), None)
    if found is None:
        pytest.skip("needs Chromium: apt-get install -y chromium-headless-shell")
    return found
