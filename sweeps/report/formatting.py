"""Durations as text, and the colours of trial states, everywhere the same."""

from __future__ import annotations

STATE_STYLES = {"finished": "green", "pruned": "yellow", "failed": "red", "running": "cyan", "stopped": "magenta"}


def duration(seconds: float) -> str:
    """``75`` -> ``1m 15s``."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m {seconds:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02}m"
