"""Budgets of a sweep: wall time, GPU time and cost."""

from __future__ import annotations

from dataclasses import dataclass

from sweeps.config.search import Stop


@dataclass
class Usage:
    """Time that a sweep has used so far, in all its sessions."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    """CPU seconds that trials held: two CPUs for one second are two."""
    gpu_s: float = 0.0
    """GPU seconds that trials held."""
    cost: float = 0.0
    """Cost of these, in the currency of the prices."""


def exhausted_budget(stop: Stop, usage: Usage) -> str | None:
    """Message on the first budget that is used up; None if none is."""
    if stop.wall_hours is not None and usage.wall_s >= stop.wall_hours * 3600:
        return f"search.stop.wall_hours={stop.wall_hours:g} is used up"
    if stop.gpu_hours is not None and usage.gpu_s >= stop.gpu_hours * 3600:
        return f"search.stop.gpu_hours={stop.gpu_hours:g} is used up"
    if stop.cost is not None and usage.cost >= stop.cost.limit:
        return f"search.stop.cost.limit={stop.cost.limit:g} is used up"
    return None
