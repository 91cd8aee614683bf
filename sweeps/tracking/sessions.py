"""The sessions of a sweep: from the start of a driver to its end. The time between two of them is a pause, and is part
of no duration that Sweeps gives.
"""

from __future__ import annotations

from collections.abc import Sequence

Session = tuple[float, float]
"""Unix times of its start and of its end; of a session that goes on, of what its driver last wrote."""

MOST_SESSIONS = 150
"""Sessions that are recorded; MLflow takes 8,000 characters in a tag."""


def with_session(earlier: Sequence[Session], began: float, ended: float) -> tuple[Session, ...]:
    """The sessions of a sweep with the present one; the oldest are merged where there are too many to be recorded."""
    sessions = [*earlier, (round(began, 3), round(max(began, ended), 3))]
    while len(sessions) > MOST_SESSIONS:
        (first, end), (begin, last) = sessions[:2]
        ran = (end - first) + (last - begin)
        sessions[:2] = [(round(last - ran, 3), last)]
    return tuple(sessions)


def elapsed(sessions: Sequence[Session], moment: float) -> float:
    """Seconds that drivers had run until a moment.

    Args:
        sessions: In their order.
        moment: Unix time.
    """
    return sum(max(0.0, min(moment, ended) - began) for began, ended in sessions)
