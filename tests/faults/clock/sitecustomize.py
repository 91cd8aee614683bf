"""Lets the clock of a Python process jump: by the seconds in the file that SWEEPS_TEST_CLOCK names."""

from __future__ import annotations

import os
import time

_now, _now_ns = time.time, time.time_ns


def _jump() -> float:
    try:
        with open(os.environ["SWEEPS_TEST_CLOCK"], encoding="ascii") as file:  # noqa: PTH123 - imports nothing more
            return float(file.read())
    except (KeyError, OSError, ValueError):
        return 0.0


if "SWEEPS_TEST_CLOCK" in os.environ:
    time.time = lambda: _now() + _jump()
    time.time_ns = lambda: _now_ns() + int(_jump() * 1e9)
