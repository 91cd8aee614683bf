"""Mutation of a point in population based training."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from sweeps.config.space import CategoricalDistribution, ConstantDistribution, Distribution, OrdinalDistribution
from sweeps.errors import ConfigError
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
        encoded = self._space.encode(point)
        for path in self._changing:
            if path not in encoded or path in values:
                continue
            encoded[path] = _moved(self._space[path], encoded[path], chance)
            if encoded[path] is None or chance.random() < self._resample_probability:
                del encoded[path]
        encoded |= self._space.encode(values)
        changed = self._space.sample(_Given(encoded, chance.randrange(2**32)), self._lookup)
        try:
            self._validate(changed)
        except ConfigError:
            return None
        return changed


def _moved(distribution: Distribution, value: Any, chance: random.Random) -> Any:
    """Mutate an encoded value; None if it has no neighbour and must be sampled again."""
    if isinstance(distribution, OrdinalDistribution):
        return value + chance.choice((-1, 1))
    if isinstance(distribution, CategoricalDistribution | ConstantDistribution) or value == 0:
        return None
    factor, step = chance.choice(FACTORS), distribution.step
    if step is not None and abs(value * factor - value) <= step / 2:  # rounded to a step, it would not change
        return value + chance.choice((-1, 1)) * step
    return value * factor


class _Given:
    """Suggests given values, clipped to their range, and draws the others at random."""

    def __init__(self, values: Mapping[str, Any], seed: int):
        self._values, self._draws = values, RandomDraws(seed)

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        if name not in self._values:
            return self._draws.suggest_float(name, low, high, step=step, log=log)
        value = float(min(max(self._values[name], low), high))
        return value if step is None else low + round((value - low) / step) * step

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        if name not in self._values:
            return self._draws.suggest_int(name, low, high, step=step, log=log)
        return int(low + round((min(max(self._values[name], low), high) - low) / step) * step)

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        return self._values[name] if name in self._values else self._draws.suggest_categorical(name, choices)
