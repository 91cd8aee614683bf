"""The echo of control characters, which a terminal writes as ``^C`` into a live display."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def without_control_echo() -> Iterator[None]:
    """While something is drawn in place: after an echo the cursor is not where rich believes that it is, and a line of
    the display would stay on the screen."""
    echoed = _set_echo(on=False)
    try:
        yield
    finally:
        if echoed:
            _set_echo(on=True)


def _set_echo(*, on: bool) -> bool:
    """Switches the echo of control characters; whether that has changed it."""
    try:
        import termios
    except ImportError:  # Windows
        return False
    try:
        terminal = sys.stdin.fileno()
        if os.tcgetpgrp(terminal) != os.getpgrp():  # in the background: a change would stop this process
            return False
        settings = termios.tcgetattr(terminal)
        if bool(settings[3] & termios.ECHOCTL) == on:
            return False
        settings[3] ^= termios.ECHOCTL
        termios.tcsetattr(terminal, termios.TCSADRAIN, settings)
    except (OSError, ValueError, termios.error):  # stdin is no terminal
        return False
    return True
