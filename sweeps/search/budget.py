"""What a sweep may use, and what it has used."""

from __future__ import annotations

from dataclasses import dataclass

from sweeps.config.search import Stop


@dataclass
class Usage:
    """What a sweep has used so far, in all its sessions."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    """Seconds of CPUs that trials held: two CPUs for a second are two."""
    gpu_s: float = 0.0
    """Seconds of GPUs that trials held."""


def spent(stop: Stop, usage: Usage) -> str | None:
    """The budget that is used up, in words; None if there is something left."""
    if stop.wall_hours is not None and usage.wall_s >= stop.wall_hours * 3600:
        return f"search.stop.wall_hours={stop.wall_hours:g} is used up"
    if stop.gpu_hours is not None and usage.gpu_s >= stop.gpu_hours * 3600:
        return f"search.stop.gpu_hours={stop.gpu_hours:g} is used up"
    if stop.cost is not None and cost(stop, usage) >= stop.cost.limit:
        return f"search.stop.cost.limit={stop.cost.limit:g} is used up"
    return None


def cost(stop: Stop, usage: Usage) -> float:
    """What the trials have cost, in the currency of the prices; nothing without prices."""
    if stop.cost is None:
        return 0.0
    return (usage.cpu_s * stop.cost.per_cpu_hour + usage.gpu_s * stop.cost.per_gpu_hour) / 3600
