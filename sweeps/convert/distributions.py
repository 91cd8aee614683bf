"""Converts distributions of other tools to ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Distribution = dict[str, Any]

DEVIATIONS = 3.0
"""Standard deviations on each side of the mean of a normal distribution that the range covers."""
CONFIDENCE = 0.67
"""Confidence of a prior whose normal distribution is a sixth of the range wide: (1 - confidence) / 2."""


class Converted(NamedTuple):
    """One of our distributions, and notes on what the conversion lost."""

    distribution: Distribution
    notes: list[str] = []  # noqa: RUF012 - never changed


def uniform(low: float, high: float, *, whole: bool = False) -> Converted:
    """Return a uniform range, both ends included."""
    kind = "int" if whole else "float"
    return Converted({"type": kind, "low": _of(kind, low), "high": _of(kind, high)})


def log_uniform(low: float, high: float, *, whole: bool = False) -> Converted:
    """Return a range that is uniform on a logarithmic scale."""
    converted = uniform(low, high, whole=whole)
    return Converted({**converted.distribution, "log": True})


def stepped(low: float, high: float, step: float) -> Converted:
    """Return the range ``low``, ``low + step``, ... up to ``high``; integers if all three are."""
    whole = all(float(each).is_integer() for each in (low, high, step))
    kind = "int" if whole else "float"
    return Converted({"type": kind, "low": _of(kind, low), "high": _of(kind, high), "step": _of(kind, step)})


def rounded_uniform(low: float, high: float, step: float) -> Converted:
    """Return a uniform range with values rounded to multiples of ``step``."""
    return stepped(_multiple(low, step), _multiple(high, step), step)


def rounded_log_uniform(low: float, high: float, step: float) -> Converted:
    """Return a log-uniform range with values rounded to multiples of ``step``."""
    first, last = max(_multiple(low, step), step), _multiple(high, step)
    if last < first:
        return Converted({"type": "constant", "value": 0}, [f"every value is rounded to 0, a multiple of {step:g}"])
    if float(step).is_integer():
        note = (
            [] if step == 1 else [f"any whole number is searched instead of multiples of {step:g}: log excludes a step"]
        )
        return Converted(log_uniform(first, last, whole=True).distribution, note)
    note = [f"values are not rounded to multiples of {step:g}: log excludes a step"]
    return Converted(log_uniform(first, last).distribution, note)


def normal(mean: float, deviation: float, step: float | None = None) -> Converted:
    """Return a range for a normal distribution: three standard deviations on each side, with a prior at the mean."""
    low, high = mean - DEVIATIONS * deviation, mean + DEVIATIONS * deviation
    return bell(low, high, mean, step=step)


def log_normal(mean: float, deviation: float, step: float | None = None) -> Converted:
    """Return a range whose logarithm has a normal distribution."""
    low, high = (math.exp(mean + sign * DEVIATIONS * deviation) for sign in (-1, 1))
    return bell(low, high, math.exp(mean), log=True, step=step)


def bell(low: float, high: float, middle: float, *, log: bool = False, step: float | None = None) -> Converted:
    """Return a range with a prior on its middle, which fades as trials show better values."""
    if low == high:
        return Converted({"type": "constant", "value": low})
    if step is None:
        converted = log_uniform(low, high) if log else uniform(low, high)
    else:
        converted = rounded_log_uniform(low, high, step) if log else rounded_uniform(low, high, step)
    kind, first = converted.distribution["type"], converted.distribution.get("low")
    if first is None:  # every value is rounded to 0
        return converted
    if "step" in converted.distribution:
        middle = first + step * round((middle - first) / step)
    prior = {"value": _of(kind, max(middle, first)), "confidence": CONFIDENCE}
    note = "a normal distribution is written as a range of three standard deviations with a prior, which fades"
    return Converted({**converted.distribution, "prior": prior}, [note, *converted.notes])


def choice(values: Sequence[Any], *, ordered: bool = False) -> Converted:
    """Return a choice among values, without duplicates."""
    distinct: list[Any] = []
    notes: list[str] = []
    for value in values:
        if not any(value == each for each in distinct):
            distinct.append(value)
        elif not any(value == each and type(value) is type(each) for each in distinct):
            notes.append(f"{value!r} equals another choice and is left out")
    if len(distinct) == 1:
        return Converted({"type": "constant", "value": distinct[0]}, notes)
    return Converted({"type": "ordinal" if ordered else "categorical", "choices": distinct}, notes)


def grid_size(space: Mapping[str, Distribution]) -> int:
    """Return the number of points of a finite space."""
    return math.prod(_count(each) for each in space.values())


def some_value(distribution: Distribution) -> Any:
    """Return a value that a distribution can have."""
    if "choices" in distribution:
        return distribution["choices"][0]
    return distribution.get("value", distribution.get("low"))


def _count(distribution: Distribution) -> int:
    if "choices" in distribution:
        return len(distribution["choices"])
    if distribution["type"] == "constant":
        return 1
    low, high, step = float(distribution["low"]), float(distribution["high"]), float(distribution.get("step", 1))
    return 1 + math.floor((high - low) / step + 1e-9)


def _multiple(value: float, step: float) -> float:
    return round(value / step) * step


def _of(kind: str, value: float) -> float:
    """Return a number as an int if it is whole, otherwise as a float without rounding noise."""
    return round(value) if kind == "int" else float(f"{value:.12g}")
