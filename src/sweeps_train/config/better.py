"""Comparison of two reports by the metrics that are optimised, and their modes ``min`` or ``max``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Objective(NamedTuple):
    """A metric to optimise."""

    metric: str
    mode: str
    """Whether ``min`` or ``max`` of it is best."""


def as_objectives(metric: str | Sequence[str], mode: str | Sequence[str]) -> tuple[Objective, ...]:
    """Return objectives from one metric and its mode, or from the same number of each."""
    metrics, modes = ([each] if isinstance(each, str) else each for each in (metric, mode))
    return tuple(Objective(*pair) for pair in zip(metrics, modes, strict=True))


def as_loss(value: float, mode: str) -> float:
    """Return a metric's value as a loss (smaller is better): negated if ``mode`` is ``max``.

    >>> as_loss(0.9, "max") < as_loss(0.8, "max")
    True
    """
    return value if mode == "min" else -value


def as_losses(metrics: Mapping[str, float], objectives: Sequence[Objective]) -> tuple[float, ...] | None:
    """Return the objectives' values in a report as losses; None if the first one is missing or not finite, since the
    report is then no result. The smaller of two tuples is better, so that a further objective decides only between
    reports that are equal in those before it.

    >>> two = as_objectives(["accuracy", "size"], ["max", "min"])
    >>> as_losses({"accuracy": 0.9, "size": 10.0}, two) < as_losses({"accuracy": 0.9, "size": 20.0}, two)
    True
    """
    losses = [as_loss(metrics.get(each.metric, math.nan), each.mode) for each in objectives]
    if not math.isfinite(losses[0]):
        return None
    return tuple(loss if math.isfinite(loss) else math.inf for loss in losses)
