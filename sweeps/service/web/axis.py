"""Axes of the drawings that pages hold."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Tick:
    """A label of an axis and where it is."""

    at: float
    text: str


def ticks(low: float, high: float, most: int) -> list[float]:
    """At most so many round numbers (multiples of 1, 2 or 5 times a power of ten) from ``low`` to ``high``.

    Args:
        low: Where the axis begins.
        high: Where it ends; above ``low``.
        most: How many there is room for; 3 or more.
    """
    raw = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{index * step:.10g}") for index in range(first, last + 1)]


def label(value: float) -> str:
    """``12000`` -> ``12k``: an axis has little room."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.4g}{unit}"
    return f"{value:,.0f}" if value == round(value) else f"{value:.4g}"


def spread(low: float, high: float) -> tuple[float, float]:
    """The same range with some room around, and never empty."""
    if low == high:
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    margin = 0.04 * (high - low)
    return low - margin, high + margin
