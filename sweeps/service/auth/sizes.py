"""Limits of the search space of submitted sweeps, checked before every option and choice is examined."""

from __future__ import annotations

from sweeps.compose import Composition
from sweeps.config.access import Access
from sweeps.errors import ConfigError

MAX_CONFIGS = 20_000
"""Maximum number of option combinations times values of the space; each is composed to be checked."""


def check_sizes(composition: Composition, access: Access) -> None:
    """Check the size of a sweep's space, points, constraints and warm start.

    Raises:
        ConfigError: Names everything that exceeds its limit.
    """
    space, search = composition.config.space, composition.config.search
    values = sum(len(getattr(each, "choices", ())) + 1 for each in space.values())
    values += sum(len(point) for point in search.points)
    counted = (
        ("space", len(space), access.max_space, "paths", "access.max_space"),
        ("space", values, access.max_choices, "choices and values", "access.max_choices"),
        ("search.points", len(search.points), access.max_points, "points", "access.max_points"),
        ("search.warm_start", len(search.warm_start), access.max_warm_starts, "sweeps", "access.max_warm_starts"),
        ("search.constraints", len(search.constraints), access.max_constraints, "of them", "access.max_constraints"),
        ("space", values * max(1, len(composition.variants)), MAX_CONFIGS, "values times options of groups", None),
    )
    mistakes = [
        f"{key}: has {count:,} {what}; the service takes at most {most:,}{f' ({setting})' if setting else ''}"
        for key, count, most, what, setting in counted
        if count > most
    ]
    if mistakes:
        raise ConfigError("\n".join(mistakes))
