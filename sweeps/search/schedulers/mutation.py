"""Mutation of a point in population based training."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from typing import Any

from sweeps.config.space import CategoricalDistribution, ConstantDistribution, Distribution, OrdinalDistribution
from sweeps.errors import ConfigError
from sweeps.space.distributions import nearest
from sweeps.space.space import Lookup, Space
from sweeps.space.suggester import RandomDraws

FACTORS = (0.8, 1.2)
MAX_ATTEMPTS = 20


class Mutation:
    """Makes points near a given one, within the space and its conditions (Jaderberg et al., 2017).

    Numbers are multiplied by 0.8 or 1.2, ordered choices move to a neighbour, and some values are sampled again.
    """

    def __init__(
        self,
        space: Space,
        changing: Collection[str],
        lookup: Lookup,
        validate: Callable[[Mapping[str, Any]], object],
        *,
        resample_probability: float,
        seed: int,
    ):
        """
        Args:
            space: Space of the search.
            changing: Paths whose values change.
            lookup: Returns the config's own value at a path.
            validate: Raises ``ConfigError`` for a point that cannot be run.
            resample_probability: Probability that a value is sampled again.
            seed: Seed of all random choices, together with the occasion: they are the same after a restart of the
                driver, and if trials report in another order.
        """
        self._space, self._changing = space, changing
        self._lookup, self._validate = lookup, validate
        self._resample_probability = resample_probability
        self._seed = seed

    def near(self, point: Mapping[str, Any], occasion: str) -> dict[str, Any]:
        """Return a valid point near ``point``; ``point`` itself if no attempt finds one.

        Args:
            point: The point.
            occasion: Seeds the random choices, together with the seed.
        """
        chance = random.Random(f"{self._seed}/{occasion}/near")
        for _ in range(MAX_ATTEMPTS):
            changed = self._changed(point, {}, chance)
            if changed is not None:
                return changed
        return dict(point)

    def with_values(self, point: Mapping[str, Any], values: Mapping[str, Any], occasion: str) -> dict[str, Any] | None:
        """Return a point with the given values, and the other changing values mutated; None if it cannot be run."""
        return self._changed(point, values, random.Random(f"{self._seed}/{occasion}"))

    def _changed(
        self, point: Mapping[str, Any], values: Mapping[str, Any], chance: random.Random
    ) -> dict[str, Any] | None:
        given = dict(point)
        for path in self._changing:
            if path in given and path not in values:
                moved = _moved(self._space[path], given.pop(path), chance)
                if moved is not None and chance.random() >= self._resample_probability:
                    given[path] = moved
        drawn = RandomDraws(chance.randrange(2**32))
        changed = self._space.sample(drawn, self._lookup, {**given, **values})
        try:
            self._validate(changed)
        except ConfigError:
            return None
        return changed


def _moved(distribution: Distribution, value: Any, chance: random.Random) -> Any:
    """Return a neighbour of a value within its range; None if it has none and must be sampled again."""
    if isinstance(distribution, OrdinalDistribution):
        place = distribution.choices.index(value) + chance.choice((-1, 1))
        return distribution.choices[min(max(place, 0), len(distribution.choices) - 1)]
    if isinstance(distribution, CategoricalDistribution | ConstantDistribution) or value == 0:
        return None
    factor, step = chance.choice(FACTORS), distribution.step
    if step is not None and abs(value * factor - value) <= step / 2:  # rounded to a step, it would not change
        moved = value + chance.choice((-1, 1)) * step
    else:
        moved = value * factor
    return nearest(distribution, moved)
