"""Durations and shortened texts, and the terminal colours of trial states."""

from __future__ import annotations

STATE_STYLES = {
    "finished": "green",
    "pruned": "yellow",
    "failed": "red",
    "running": "cyan",
    "stopped": "magenta",
    "interrupted": "bright_yellow",
}


def duration(seconds: float) -> str:
    """Format seconds as a duration: ``75`` becomes ``1m 15s``."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m {seconds:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02}m"


def shorten(text: str, longest: int) -> str:
    """Text cut to at most ``longest`` characters, with an ellipsis where it was cut."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
