"""Converts reported values to metrics: numbers with text names.

All kinds of trainings use this module, so that a name or a value always means the same. A name that is not clearly one
text is refused, so that nothing that a trial reports can reach another trial's record.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from numbers import Real
from typing import Any

SYSTEM_METRICS = (
    "system/cpu_percent",
    "system/memory_mib",
    "system/total_memory_mib",
    "system/gpu_memory_mib",
    "system/gpu_memory_reserved_mib",
)
"""Metrics of their processes that workers report, or that a user's code reports itself."""
LARGEST_STEP = 2**53
"""Maximum step: steps are stored as 64-bit integers, and JSON parsers represent integers exactly up to this one."""


@dataclass(frozen=True)
class ReportedMetrics:
    """Numbers of a report by name (in nested mappings such as ``eval/loss``), and the types of its other values."""

    numbers: dict[str, float]
    others: dict[str, str]
    """Types of the values that are not numbers, in words."""


def metrics_in(reported: Mapping[Any, Any]) -> ReportedMetrics:
    """Return the numbers of a report, and the types of its other values.

    Raises:
        ValueError: A name is not a text, or two values would have the same name.

    Example:
        >>> metrics_in({"loss": 0.5, "eval": {"accuracy": True}, 0: 2, "note": "x"})
        ReportedMetrics(numbers={'loss': 0.5, 'eval/accuracy': 1.0, '0': 2.0}, others={'note': 'str'})
    """
    numbers: dict[str, float] = {}
    others: dict[str, str] = {}
    for name, value in flattened(reported):
        if name in numbers or name in others:
            raise ValueError(f"two reported values would both have the name {name!r}; rename one")
        number = as_number(value)
        if number is None:
            others[name] = _describe(value)
        else:
            numbers[name] = number
    return ReportedMetrics(numbers, others)


def flattened(reported: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Return the names and values of nested mappings, whose names are joined by ``/``.

    Raises:
        ValueError: A name is not a string.
    """
    for key, value in reported.items():
        name = _as_text(key)
        if name is None:
            raise ValueError(
                f"the reported name {prefix}{key!r} is of the type {type(key).__name__}; metric names must be strings"
            )
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", value


def as_number(value: Any) -> float | None:
    """Return a number of any type as a float, even in a tensor or an array of one element; None for anything else.
    Numbers that are too large for a float become infinite.

    >>> from fractions import Fraction
    >>> as_number(Fraction(1, 4)), as_number(True), as_number(-(10**400)), as_number("0.5"), as_number([0.5])
    (0.25, 1.0, -inf, None, None)
    """
    if isinstance(value, str | bytes | bytearray) or _num_elements(value) != 1:
        return None
    if _is_masked(value):
        return math.nan
    if callable(item := getattr(value, "item", None)):  # of a tensor, an array or one of their scalars
        scalar = item()
        return as_number(scalar) if type(scalar) is not type(value) else _as_float(scalar)
    return _as_float(value)


def as_step(name: str, value: Any) -> int:
    """Return a metric's value as a step.

    Raises:
        ValueError: The value is not a whole number from 0, or too large to be stored.

    Example:
        >>> as_step("step", 10.0)
        10
    """
    number = as_number(value)
    if number is None or not number.is_integer() or not 0 <= number <= LARGEST_STEP:
        shown = _describe(value) if number is None else f"{number:g}"
        raise ValueError(f"{name}: it was {shown}, and must be a whole number from 0 to {LARGEST_STEP}")
    return int(number)


def _is_masked(value: Any) -> bool:
    """Whether NumPy masks the value, as it does the mean of no values: ``item()`` would return what lies below."""
    masked: Any = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(value, masked.MaskedArray) and bool(masked.is_masked(value))


def _num_elements(value: Any) -> int:
    numel = getattr(value, "numel", None)  # torch; `size` is a method there
    size = numel() if callable(numel) else getattr(value, "size", 1)
    return size if isinstance(size, int) else 1


def _as_float(value: Any) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        return None


def _as_text(name: Any) -> str | None:
    """Return a name as text; None if it is ambiguous."""
    if isinstance(name, str):
        return str.__str__(name)  # the value of an enumeration of texts
    if isinstance(name, Enum):
        return name.value if isinstance(name.value, str) else name.name
    if isinstance(name, Real):
        return str(name)
    if isinstance(name, tuple) and name:
        parts = [_as_text(each) for each in name]
        return None if None in parts else "/".join(str(part) for part in parts)
    return None


def _describe(value: Any) -> str:
    """Return a value's type in words."""
    count = _num_elements(value)
    return type(value).__name__ if count == 1 else f"{type(value).__name__} of {count} elements"
