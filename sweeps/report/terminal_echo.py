"""Terminal echo of control characters, such as ``^C``, which would spoil a live display."""

from __future__ import annotations

import contextlib
import os
import sys
import termios
from collections.abc import Iterator


@contextlib.contextmanager
def without_control_echo() -> Iterator[None]:
    """Turn the echo off while a live display is shown.

    After an echo the cursor is not where rich expects it, so a line of the display would remain on the screen.
    """
    changed = _set_echo(on=False)
    try:
        yield
    finally:
        if changed:
            _set_echo(on=True)


def _set_echo(*, on: bool) -> bool:
    """Turn the echo of control characters on or off; return whether that changed the setting."""
    try:
        terminal = sys.stdin.fileno()
        if os.tcgetpgrp(terminal) != os.getpgrp():  # in the background: a change would stop this process
            return False
        settings = termios.tcgetattr(terminal)
        if bool(settings[3] & termios.ECHOCTL) == on:
            return False
        settings[3] ^= termios.ECHOCTL
        termios.tcsetattr(terminal, termios.TCSADRAIN, settings)
    except (OSError, ValueError, termios.error):  # stdin is not a terminal
        return False
    return True
