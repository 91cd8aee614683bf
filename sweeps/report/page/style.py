"""How figures look, on the page and as pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

STATE_COLOURS = {
    "finished": "#2563c9",
    "pruned": "#d9892b",
    "failed": "#c93a3a",
    "running": "#178f8f",
    "stopped": "#7d55c7",
}
BEST_COLOUR = "#111827"
STARTING_COLOUR = "#c3c9d4"
MUTED = "#6b7280"
GRID = "#e5e7eb"
VALUE_SCALE = "Viridis"
"""Of values: the best are dark."""


TAIL = 5
"""So many times the distance from the best to the ninth tenth of the values a value may lie beyond that one."""


def robust_range(values: Sequence[float], mode: str) -> tuple[float, float] | None:
    """An axis on which a few diverged trials do not press the others flat; None where all values fit.

    Args:
        values: Finite ones.
        mode: ``min`` or ``max``: the best values are always within.
    """
    if len(values) < 5:
        return None
    ordered = sorted(values if mode == "min" else [-value for value in values])
    best, middle, most = ordered[0], ordered[len(ordered) // 2], ordered[int(0.9 * (len(ordered) - 1))]
    limit = most + TAIL * (most - best) if most > best else middle + abs(middle)
    if ordered[-1] <= limit:
        return None
    margin = 0.05 * (limit - best) or 1.0
    low, high = best - margin, limit + margin
    return (low, high) if mode == "min" else (-high, -low)


def count_outside(values: Iterable[float], limits: tuple[float, float] | None) -> int:
    return 0 if limits is None else sum(not limits[0] <= value <= limits[1] for value in values)


def time_unit(seconds: float) -> tuple[float, str]:
    """What to divide seconds by on an axis of such a length, and the unit's name."""
    for unit, name in ((1.0, "seconds"), (60.0, "minutes"), (3600.0, "hours")):
        if seconds < 180 * unit:
            return unit, name
    return 86400.0, "days"
