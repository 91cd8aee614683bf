"""Length of a trial in the units that schedulers count in, computed from its config."""

from __future__ import annotations

import math

from sweeps.compose import Composition
from sweeps.config import SweepConfig
from sweeps.config.schedulers import HyperbandScheduler, Resource
from sweeps.errors import ConfigError
from sweeps.space.space import Lookup, Space

LENGTH_PATHS = {"train", "train.max_steps", "train.epochs", "train.eval_every", "train.global_batch_size"}
"""Paths on which the length of a trial depends."""


def trial_length(config: SweepConfig, resource: Resource) -> float | None:
    """Return the resource that a complete trial takes; None if that depends on the data or the machine."""
    train = config.loop
    if train is None:
        return None  # a user's own function
    steps = train.max_steps
    known: dict[Resource, float | None] = {"epochs": train.epochs}
    if steps is not None:
        known["steps"] = steps
        known["evaluations"] = math.ceil(steps / train.eval_every)
        if train.max_communication_share is None:  # otherwise the workers choose the batch size
            known["samples"] = steps * train.global_batch_size
    return known.get(resource)


def hyperband_range(composition: Composition, space: Space, lookup: Lookup) -> tuple[float | None, float | None]:
    """Return Hyperband's minimum and maximum resource: about the first evaluation of a trial, and the end of a complete
    one. Each is None if neither set nor known."""
    scheduler = composition.config.search.scheduler
    assert isinstance(scheduler, HyperbandScheduler)
    longest = scheduler.longest or longest_trial(composition, space, scheduler.resource, lookup)
    if scheduler.grace is not None or scheduler.resource == "evaluations":
        return scheduler.grace or 1, longest
    evaluations = longest_trial(composition, space, "evaluations", lookup)
    return (None if longest is None or evaluations is None else longest / evaluations), longest


def longest_trial(composition: Composition, space: Space, resource: Resource, lookup: Lookup) -> float | None:
    """Return the length of the longest trial of the space (``trial_length``); None if the length of any trial is
    unknown."""
    configs = [composition.config]
    # One path at a time, although two may be longer together: rungs that are on record depend on this length.
    for path, _, point in space.corners(lookup):
        if path in LENGTH_PATHS:
            try:
                configs.append(composition.trial(point))
            except ConfigError:
                continue  # the check of the space reports it
    lengths = [trial_length(config, resource) for config in configs]
    known = [length for length in lengths if length is not None]
    return max(known) if len(known) == len(lengths) else None
