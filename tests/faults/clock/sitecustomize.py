"""Lets the clock of a Python process jump: by the seconds in the file that SWEEPS_TEST_CLOCK names."""

from __future__ import annotations

import os
import time as clock

_time, _time_ns = clock.time, clock.time_ns


READ_EVERY_S = 0.05


class _Read:
    """The last reading of the file."""

    at, seconds = -1.0, 0.0


def jump() -> float:
    """Seconds by which the clock is wrong now."""
    if clock.monotonic() - _Read.at > READ_EVERY_S:
        _Read.at = clock.monotonic()
        try:
            with open(os.environ["SWEEPS_TEST_CLOCK"], encoding="ascii") as file:  # noqa: PTH123 - imports nothing more
                _Read.seconds = float(file.read())
        except (KeyError, OSError, ValueError):
            _Read.seconds = 0.0
    return _Read.seconds


def time() -> float:
    """Take the place of ``time.time``; a function with a name, which Ray can pickle."""
    return _time() + jump()


def time_ns() -> int:
    """Take the place of ``time.time_ns``."""
    return _time_ns() + int(jump() * 1e9)


if "SWEEPS_TEST_CLOCK" in os.environ:
    clock.time, clock.time_ns = time, time_ns
