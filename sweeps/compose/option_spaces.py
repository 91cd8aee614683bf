"""Spaces of the options of searched groups: the space of an option is searched in the trials that have this option."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sweeps.errors import ConfigError

FlatSpace = dict[str, Any]
"""Distributions by dotted path, in the form of YAML."""
Options = tuple[tuple[str, str], ...]
"""Chosen options of the searched groups."""


def joined_space(spaces: Mapping[Options, FlatSpace], searched: Mapping[str, Sequence[str]]) -> FlatSpace:
    """Return the space of a sweep over groups. A path that only some options search gets a condition on those options.

    Args:
        spaces: The space that each combination of options is composed to.
        searched: Searched options by group.

    Raises:
        ConfigError: Options search the same path in different ranges, or only in some combinations of groups.

    Example:
        >>> deep = {"model.depth": {"type": "int", "low": 2, "high": 8}}
        >>> joined_space({(("model", "deep"),): deep, (("model", "wide"),): {}}, {"model": ["deep", "wide"]})
        {'model.depth': {'type': 'int', 'low': 2, 'high': 8, 'when': {'model': ['deep']}}}
    """
    joined: FlatSpace = {}
    for path in dict.fromkeys(path for space in spaces.values() for path in space):
        having = [options for options, space in spaces.items() if path in space]
        distribution = spaces[having[0]][path]
        for options in having:
            if spaces[options][path] != distribution:
                raise ConfigError(
                    f"space.{path}: {_described(having[0])} and {_described(options)} search it in different ranges; "
                    f"give one of them another path, or one range for all in the sweep's own space"
                )
        conditions = _conditions(path, having, spaces, searched)
        if conditions and isinstance(distribution, Mapping):
            distribution = {**distribution, "when": {**distribution.get("when", {}), **conditions}}
        joined[path] = distribution
    return joined


def _conditions(
    path: str, having: Sequence[Options], spaces: Mapping[Options, FlatSpace], searched: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    conditions = {
        group: [option for option in options if any((group, option) in each for each in having)]
        for group, options in searched.items()
    }
    allowed = [each for each in spaces if all(option in conditions[group] for group, option in each)]
    if len(allowed) != len(having):
        raise ConfigError(
            f"space.{path}: {_described(having[0])} searches it, but not every combination of these options does; "
            "put it into the sweep's own space, with `when`"
        )
    return {group: options for group, options in conditions.items() if len(options) < len(searched[group])}


def _described(options: Options) -> str:
    return ", ".join(f"{group}={option}" for group, option in options)
