"""Budgets of a sweep: wall time, GPU time and cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from sweeps.config.search import Stop


@dataclass
class Usage:
    """Time and cost that a sweep has used so far, in all its sessions."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    """CPU-seconds that trials held: two CPUs for one second are two."""
    gpu_s: float = 0.0
    """GPU-seconds that trials held."""
    cost: float = 0.0
    """Cost of the trials' resources, in the currency of the prices."""


def exhausted_budget(stop: Stop, usage: Usage) -> str | None:
    """Return a message about the first budget that is used up; None if none is."""
    used_up = (name for name, limit, used in _budgets(stop, usage) if used >= limit)
    return next((f"search.stop.{name} is used up" for name in used_up), None)


def remaining_s(stop: Stop, usage: Usage) -> float:
    """Return the seconds until the first budget is used up, at the rate of the sweep so far; infinity if there is no
    budget."""
    return next_exhausted(stop, usage, usage)[0]


def next_exhausted(stop: Stop, usage: Usage, rate: Usage) -> tuple[float, str]:
    """Return the seconds until the first budget is used up, and the message about it; infinity if there is none.

    Args:
        stop: The budgets.
        usage: Time and resources used so far.
        rate: Time and resources that are used in ``rate.wall_s`` seconds from now on.
    """
    left = [
        (max(0.0, (limit - used) * rate.wall_s / each) if each > 0 else math.inf, f"search.stop.{name} is used up")
        for (name, limit, used), (_, _, each) in zip(_budgets(stop, usage), _budgets(stop, rate), strict=True)
    ]
    return min(left, key=lambda each: each[0], default=(math.inf, ""))


def _budgets(stop: Stop, usage: Usage) -> Iterator[tuple[str, float, float]]:
    """Yield each budget as text for a message, its limit, and the used amount."""
    if stop.wall_hours is not None:
        yield f"wall_hours={stop.wall_hours:g}", stop.wall_hours * 3600, usage.wall_s
    if stop.gpu_hours is not None:
        yield f"gpu_hours={stop.gpu_hours:g}", stop.gpu_hours * 3600, usage.gpu_s
    if stop.cost is not None:
        yield f"cost.limit={stop.cost.limit:g}", stop.cost.limit, usage.cost
