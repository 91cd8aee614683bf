"""Sessions of a sweep, each from a driver's start to its end. Durations exclude the pauses between sessions."""

from __future__ import annotations

from collections.abc import Sequence

Session = tuple[float, float]
"""Unix times of a session's start and end; for the current session, the end is the time of the driver's last update."""

MOST_SESSIONS = 150
"""Maximum number of recorded sessions; MLflow allows 8,000 characters in a tag."""


def with_session(earlier: Sequence[Session], began: float, ended: float) -> tuple[Session, ...]:
    """Return the earlier sessions, in order, and the current one; the oldest are merged if there are too many to
    record."""
    sessions = [*earlier, (round(began, 3), round(max(began, ended), 3))]
    while len(sessions) > MOST_SESSIONS:
        (first, end), (begin, last) = sessions[:2]
        ran = (end - first) + (last - begin)
        sessions[:2] = [(round(last - ran, 3), last)]
    return tuple(sessions)


def elapsed(sessions: Sequence[Session], moment: float) -> float:
    """Return the seconds that drivers had run until a moment, in Unix time."""
    return sum(max(0.0, min(moment, ended) - began) for began, ended in sessions)
