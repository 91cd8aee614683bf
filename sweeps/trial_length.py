"""How long a trial is, in the units that schedulers count in, as far as its config tells."""

from __future__ import annotations

import math

from sweeps.compose import Composition
from sweeps.config import SweepConfig
from sweeps.config.search import Resource
from sweeps.errors import ConfigError
from sweeps.space import Lookup, Space

DECIDE_LENGTH = {"train", "train.max_steps", "train.epochs", "train.eval_every", "train.global_batch_size"}


def trial_length(config: SweepConfig, resource: Resource) -> float | None:
    """What a whole trial takes, or None where that depends on the data or the machine."""
    train = config.train
    if train is None:
        return None  # a user's own function
    if resource == "epochs":
        return train.epochs
    if train.max_steps is None:
        return None
    match resource:
        case "steps":
            return train.max_steps
        case "evaluations":
            return math.ceil(train.max_steps / train.eval_every)
        case "samples":
            return train.max_steps * train.global_batch_size
    return None


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
