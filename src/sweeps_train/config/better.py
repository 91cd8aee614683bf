"""Comparison of two values of a metric: the one definition of better."""

from __future__ import annotations


def as_loss(value: float, mode: str) -> float:
    """A metric's value as a loss: the smaller of two is better, whether ``min`` or ``max`` of the metric is best.

    >>> as_loss(0.9, "max") < as_loss(0.8, "max")
    True
    """
    return value if mode == "min" else -value
