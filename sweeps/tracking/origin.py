"""Who started a sweep, and from which code."""

from __future__ import annotations

import getpass
import subprocess


def user() -> str:
    """Name of the user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "unknown"


def git_commit() -> str | None:
    """Commit of the checkout that the working folder is in."""
    try:
        answer = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
