"""Comparison of two values of a metric, by the mode ``min`` or ``max``."""

from __future__ import annotations


def as_loss(value: float, mode: str) -> float:
    """Return a metric's value as a loss, of which smaller is better: negated if ``mode`` is ``max``.

    >>> as_loss(0.9, "max") < as_loss(0.8, "max")
    True
    """
    return value if mode == "min" else -value
