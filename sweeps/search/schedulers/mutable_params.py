"""Which parameters can change in the middle of a training: what population based schedulers may mutate."""

from __future__ import annotations

from sweeps.config.search import PB2Scheduler, PBTScheduler
from sweeps.config.space import FloatDistribution, IntDistribution
from sweeps.space.distributions import Space

CHANGEABLE = (
    "train.lr",
    "train.weight_decay",
    "train.momentum",
    "train.max_grad_norm",
    "model.dropout",
    "model.lora.dropout",
)
"""Neither the shape of a weight, nor the order of the data, nor the length of the training depends on them."""


def can_change(path: str) -> bool:
    """Whether a training that goes on from a checkpoint may have another value; of a user's own arguments, which only
    that user can know, it is believed."""
    return path in CHANGEABLE or ".arguments." in path


def mutated_paths(scheduler: PBTScheduler | PB2Scheduler, space: Space) -> list[str]:
    """What a population based scheduler changes: what ``mutate`` names, or all that the space has and that can change
    (for PB2 only ranges). A parameter with a condition, or on which one depends, would come or go, and stays."""
    if scheduler.mutate is not None:
        return list(scheduler.mutate)
    decisive = {other for path in space for other in space[path].when}
    return [
        path
        for path in space
        if path in CHANGEABLE
        and not space[path].when
        and path not in decisive
        and (scheduler.kind == "pbt" or isinstance(space[path], FloatDistribution | IntDistribution))
    ]
