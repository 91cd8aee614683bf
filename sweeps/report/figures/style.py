"""Colours, axis ranges and units that all figures share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

STATE_COLOURS = {
    "finished": "#2563c9",
    "pruned": "#d9892b",
    "failed": "#c93a3a",
    "running": "#178f8f",
    "stopped": "#7d55c7",
    "interrupted": "#7b861f",
}
END_MARKS: Mapping[str, str] = {"pruned": "cross", "stopped": "cross", "failed": "square"}
"""Mark at the end of a learning curve, by trial state."""
BEST_COLOUR = "#111827"
STARTING_COLOUR = "#c3c9d4"
INK = "#1f2937"
MUTED = "#6b7280"
GRID = "#e5e7eb"
BACKGROUND = "#ffffff"
CHOSEN_COLOURS = ("#2563c9", "#c2410c", "#15803d", "#a21caf", "#0e7490", "#92400e", "#be123c", "#4d7c0f")
"""Colours of trials that the reader compares, in the order in which they are chosen."""
SCALE = [[0, "#9cc3f5"], [1, "#0b3a8f"]]
"""Colour scale of the order of trials, from the first to the latest."""
RANK_COLOURS = ("#c9d1db", "#a9c2e8", "#6f9fe0", "#2f6fcf", "#0b3a8f")
"""Colours of trials from the worst to the best."""
DARK = {
    "#c9d1db": "#3a4554",
    "#a9c2e8": "#41608f",
    "#6f9fe0": "#5f8fd8",
    "#2f6fcf": "#8db2ff",
    INK: "#e4e9f0",
    MUTED: "#9ba7b6",
    GRID: "#2f3845",
    BACKGROUND: "#191f27",
    BEST_COLOUR: "#f4f7fb",
    STARTING_COLOUR: "#4c5866",
    "#5586cc": "#6f9ae0",
    "#7690b8": "#6484b4",
    "#8792a1": "#6d7889",
    "#9cc3f5": "#35527f",
    "#0b3a8f": "#bcd7ff",
    "#2563c9": "#79a6f6",
    "#d9892b": "#e0a458",
    "#c93a3a": "#f08a8a",
    "#178f8f": "#52c3c0",
    "#7d55c7": "#b79bf0",
    "#7b861f": "#c3cf63",
    "#c2410c": "#fb923c",
    "#15803d": "#4ade80",
    "#a21caf": "#e879f9",
    "#0e7490": "#38bdf8",
    "#92400e": "#d6a26a",
    "#be123c": "#fb7185",
    "#4d7c0f": "#a3e635",
}
"""Colour on a dark background, by the colour on a light one."""
VALUE_SCALE = [[0, "#0b3a8f"], [0.25, "#2f6fcf"], [0.5, "#5586cc"], [0.75, "#7690b8"], [1, "#8792a1"]]
"""Colour scale of values from the best to the worst; a thin line of each colour is visible on the background."""
WEBGL_FROM = 4000
"""Number of points from which WebGL draws a figure: browsers are slow with more SVG points, and allow few WebGL
figures."""
TAIL = 5
"""Maximum distance of the axis end from the 90th percentile, as a multiple of that percentile's distance from the best
value; outliers beyond it are cut off."""


def robust_range(values: Sequence[float], mode: str) -> tuple[float, float] | None:
    """Axis range that leaves out extreme outliers among finite values, so that a few diverged trials do not flatten the
    others. The best values are always within the range. None if all values fit, or there are fewer than five."""
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


def value_range(values: Sequence[float], mode: str) -> tuple[float, float]:
    """Range of the axis: ``robust_range``, or from the lowest to the highest value if all fit."""
    return robust_range(values, mode) or (min(values), max(values))


def count_outside(values: Iterable[float], limits: tuple[float, float] | None) -> int:
    return 0 if limits is None else sum(not limits[0] <= value <= limits[1] for value in values)


def time_unit(seconds: float) -> tuple[float, str]:
    """Divisor of seconds and name of the unit for a time axis of this length."""
    for unit, name in ((1.0, "seconds"), (60.0, "minutes"), (3600.0, "hours")):
        if seconds < 180 * unit:
            return unit, name
    return 86400.0, "days"
