"""Checks of ``search.stages.N.rescale``: searched ranges, and sizes that change from the stage to what follows."""

from __future__ import annotations

from collections.abc import Iterator

from sweeps.config.search import Search
from sweeps.config.space import FloatDistribution, IntDistribution
from sweeps.space.distributions import Lookup, Space
from sweeps.suggestions import did_you_mean


def rescaling_mistakes(search: Search, space: Space, phases: list[Lookup]) -> Iterator[str]:
    """Yield one line for each mistake, with key, value and fix.

    Args:
        search: Section ``search`` of the sweep.
        space: Its space.
        phases: Lookups of the config's values in each stage, and in the sweep itself.
    """
    for index, stage in enumerate(search.stages):
        for path, rule in stage.rescale.items():
            key = f"search.stages.{index}.rescale.{path}"
            if path not in space:
                yield f"{key}={rule}: {path} is not searched{did_you_mean(path, space)}"
            elif not isinstance(space[path], FloatDistribution | IntDistribution):
                yield f"{key}={rule}: {path} has choices; only a range of numbers can be rescaled: leave it out"
            elif isinstance(rule, dict):
                yield from _size_mistakes(key, rule, space, phases[index], phases[index + 1])


def _size_mistakes(key: str, rule: dict[str, float], space: Space, stage: Lookup, following: Lookup) -> Iterator[str]:
    for size, power in rule.items():
        what, values = f"{key}.{size}={power:g}:", (stage(size), following(size))
        if size in space:
            yield f"{what} {size} is searched, and so has no value of the whole stage; name one that the stage changes"
        elif not all(isinstance(value, int | float) and value > 0 for value in values) or True in values:
            yield (
                f"{what} {size} is {values[0]} in the stage and {values[1]} after it; name a positive number of both, "
                "or give a factor instead of the mapping"
            )
        elif values[0] == values[1]:
            yield (
                f"{what} {size} is {values[0]:g} in the stage and after it, which changes nothing; change it in the "
                "stage's overrides, or leave it out"
            )
