"""Decides whether the trials of a sweep share their workers, if the config leaves it open."""

from __future__ import annotations

import contextlib

from sweeps.compose import Composition
from sweeps.errors import ConfigError
from sweeps.space.space import Space
from sweeps.validate.config_checks import lookup_in
from sweeps.validate.lane_checks import differences, why_alone


def with_lanes(composition: Composition) -> tuple[Composition, str | None]:
    """Replace ``scaling.trials_per_group=auto`` by 1 if trials cannot share their workers.

    Returns:
        The sweep, and the reason if the number was replaced. Otherwise the first trials tell it.
    """
    if composition.config.scaling.trials_per_group != "auto":
        return composition, None
    reason = why_alone(composition.config)
    if reason is None:
        with contextlib.suppress(ConfigError):  # the check of the space reports it
            space = Space(composition.config.space)
            reason = next(differences(composition, space, lookup_in(composition)), None)
    if reason is None:
        return composition, None
    return composition.changed({"scaling.trials_per_group": 1}), f"scaling.trials_per_group=auto is 1: {reason}"
