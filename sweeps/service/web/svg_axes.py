"""Axes of the SVG charts on the pages: coordinates of values, and ticks.

The pages draw SVG and not Plotly's figures, because they must work without JavaScript, under a content security policy
without inline styles, and in dark mode.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LEFT, TOP, RIGHT, BOTTOM = 62, 12, 20, 34
"""Margins."""


@dataclass(frozen=True, kw_only=True)
class Tick:
    """A tick of an axis."""

    at: float
    """Coordinate."""
    text: str


@dataclass(frozen=True, kw_only=True)
class Axes:
    """Plot area of a chart, in units of the drawing, which browsers scale."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    height: int
    width: int = 760

    @property
    def left(self) -> int:
        return LEFT

    @property
    def right(self) -> int:
        return self.width - RIGHT

    @property
    def bottom(self) -> int:
        return self.height - BOTTOM

    def x(self, value: float) -> float:
        low, high = self.x_range
        return round(LEFT + (value - low) / (high - low) * (self.right - LEFT), 1)

    def y(self, value: float) -> float:
        """Coordinate of a value; values outside the range are at its end."""
        low, high = self.y_range
        share = (min(max(value, low), high) - low) / (high - low)
        return round(self.bottom - share * (self.bottom - TOP), 1)

    @property
    def y_ticks(self) -> list[Tick]:
        return [Tick(at=self.y(value), text=label(value)) for value in ticks(*self.y_range, 6)]

    @property
    def integer_x_ticks(self) -> list[Tick]:
        return [Tick(at=self.x(each), text=label(each)) for each in ticks(*self.x_range, 7) if each == int(each)]


def svg_path(points: Iterable[Sequence[float]]) -> str:
    """``d`` of an SVG path through the points."""
    return "M" + "L".join(f"{x:g},{y:g}" for x, y in points)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return up to ``most`` round numbers (multiples of 1, 2 or 5 times a power of ten) from ``low`` to ``high``.

    Args:
        low: Lower end of the axis.
        high: Upper end of the axis; above ``low``.
        most: Largest number of ticks; 3 or more.
    """
    raw = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{index * step:.10g}") for index in range(first, last + 1)]


def label(value: float) -> str:
    """Short text of a tick: ``12000`` -> ``12k``."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.4g}{unit}"
    return f"{value:,.0f}" if value == round(value) else f"{value:.4g}"


def padded(low: float, high: float) -> tuple[float, float]:
    """The range with a margin of 4% on both sides; never empty."""
    if low == high:
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    margin = 0.04 * (high - low)
    return low - margin, high + margin
