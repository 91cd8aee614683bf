"""How long a trial is, in the units that schedulers count in, as far as its config tells."""

from __future__ import annotations

import math

from sweeps.compose import Composition
from sweeps.config import SweepConfig
from sweeps.config.search import HyperbandScheduler, Resource
from sweeps.errors import ConfigError
from sweeps.space.distributions import Lookup, Space

DECIDE_LENGTH = {"train", "train.max_steps", "train.epochs", "train.eval_every", "train.global_batch_size"}


def trial_length(config: SweepConfig, resource: Resource) -> float | None:
    """What a whole trial takes, or None where that depends on the data or the machine."""
    train = config.train
    if train is None:
        return None  # a user's own function
    steps = train.max_steps
    known: dict[Resource, float | None] = {"epochs": train.epochs}
    if steps is not None:
        known["steps"] = steps
        known["evaluations"] = math.ceil(steps / train.eval_every)
        if train.max_communication_share is None:  # else that is for the workers to find out
            known["samples"] = steps * train.global_batch_size
    return known.get(resource)


def hyperband_range(composition: Composition, space: Space, lookup: Lookup) -> tuple[float | None, float | None]:
    """What every trial gets of Hyperband's resource (about what it has used at its first evaluation), and what a whole
    one takes; None where that is not set and cannot be told."""
    scheduler = composition.config.search.scheduler
    assert isinstance(scheduler, HyperbandScheduler)
    longest = scheduler.longest or longest_trial(composition, space, scheduler.resource, lookup)
    if scheduler.grace is not None or scheduler.resource == "evaluations":
        return scheduler.grace or 1, longest
    evaluations = longest_trial(composition, space, "evaluations", lookup)
    return (None if longest is None or evaluations is None else longest / evaluations), longest


def longest_trial(composition: Composition, space: Space, resource: Resource, lookup: Lookup) -> float | None:
    """``trial_length`` of the longest trial that the space can make; None where one cannot be told."""
    configs = [composition.config]
    for path, _, point in space.corners(lookup):
        if path in DECIDE_LENGTH:
            try:
                configs.append(composition.trial(point))
            except ConfigError:
                continue  # told by the check of the space
    lengths = [trial_length(config, resource) for config in configs]
    known = [length for length in lengths if length is not None]
    return max(known) if len(known) == len(lengths) else None
