"""Parameters that population based schedulers may change during a training."""

from __future__ import annotations

from sweeps.config.schedulers import PB2Scheduler, PBTScheduler
from sweeps.config.space import FloatDistribution, IntDistribution
from sweeps.space.space import Space

MUTABLE = (
    "train.lr",
    "train.weight_decay",
    "train.momentum",
    "train.max_grad_norm",
    "model.dropout",
    "model.lora.dropout",
)
"""Paths that affect neither the shape of a weight, nor the order of the data, nor the length of the training."""


def is_mutable(path: str) -> bool:
    """Whether a training that continues from a checkpoint may change the value at a path; assumed for a user's own
    arguments."""
    return path in MUTABLE or ".arguments." in path


def mutated_paths(scheduler: PBTScheduler | PB2Scheduler, space: Space) -> list[str]:
    """Return the paths that a population based scheduler changes: those in ``mutate``, or all mutable ones of the
    space.

    PB2 changes only ranges. By default, parameters that have a condition, or that a condition names, are not changed,
    since other parameters would begin or cease to exist.
    """
    if scheduler.mutate is not None:
        return list(scheduler.mutate)
    decisive = {other for path in space for other in space[path].when}
    return [
        path
        for path in space
        if path in MUTABLE
        and not space[path].when
        and path not in decisive
        and (scheduler.kind == "pbt" or isinstance(space[path], FloatDistribution | IntDistribution))
    ]
