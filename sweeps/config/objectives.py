"""Objectives of a search: its metrics, their directions, and limits on reported metrics."""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from sweeps.config.search import Limit, Mode, Search
from sweeps_train.config.better import Objective, as_objectives
from sweeps_train.config.better import as_loss as as_loss  # noqa: PLC0414 - for those who may not import the library

Key = TypeVar("Key", bound=Hashable)
Values = tuple[float, ...]
"""Values of the objectives, in their order."""
NOT_FINITE_EXCESS = 1e6
"""Excess of a value that is not finite: far beyond any bound, but still a number for a sampler's model."""


class _Bound(NamedTuple):
    """One bound of a limit."""

    name: str
    metric: str
    value: float
    sign: int
    """1 for an upper bound, -1 for a lower one."""


@dataclass(frozen=True)
class Objectives:
    """Optimised metrics. Schedulers use the first one; among checkpoints with the same value of it, the next one
    decides."""

    metrics: tuple[str, ...]
    modes: tuple[Mode, ...]
    limits: Mapping[str, Limit] = field(default_factory=dict)
    last_counts: bool = False
    """Whether a trial's last report counts, instead of its best one."""

    @classmethod
    def of(cls, search: Search) -> Objectives:
        return cls(search.metrics, search.modes, search.limits, search.value == "last")

    def values(self, metrics: Mapping[str, float]) -> Values | None:
        """Return the values of all objectives in a report; None if one is missing or not finite."""
        values = tuple(float(metrics.get(name, math.nan)) for name in self.metrics)  # NumPy's are no JSON
        return values if all(math.isfinite(value) for value in values) else None

    def improves(self, new: Values, old: Values | None) -> bool:
        """Whether a report replaces an earlier one as the trial's value: if its first objective is better, or as good
        and a further one is better; or always if the last report counts."""
        if old is None or self.last_counts:
            return True
        return self._losses(new) < self._losses(old)

    @property
    def pairs(self) -> tuple[Objective, ...]:
        """Each metric with its mode, as the training library compares checkpoints."""
        return as_objectives(self.metrics, self.modes)

    def loss(self, value: float) -> float:
        """Convert a value of the first objective to a loss, which is smaller for a better value."""
        return as_loss(value, self.modes[0])

    def violation(self, metrics: Mapping[str, float]) -> str | None:
        """Describe the first limit that a report violates; None if it violates none."""
        for name, limit in self.limits.items():
            value = metrics.get(name)
            if value is None:
                continue
            if limit.max is not None and not value <= limit.max:
                return f"{name}={value:.4g} is above its limit of {limit.max:g}"
            if limit.min is not None and not value >= limit.min:
                return f"{name}={value:.4g} is below its limit of {limit.min:g}"
        return None

    def bounds(self) -> list[str]:
        """Return the names of all bounds, such as ``system/memory_mib <= 2000``."""
        return [bound.name for bound in self._bounds()]

    def excesses(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return how far a report exceeds each bound whose metric it has, relative to the bound; zero within it."""
        excesses: dict[str, float] = {}
        for bound in self._bounds():
            if (value := metrics.get(bound.metric)) is not None:
                excess = bound.sign * (float(value) - bound.value) / (abs(bound.value) or 1.0)
                excesses[bound.name] = max(0.0, excess) if math.isfinite(excess) else NOT_FINITE_EXCESS
        return excesses

    def _bounds(self) -> Iterator[_Bound]:
        for metric, limit in self.limits.items():
            if limit.max is not None:
                yield _Bound(f"{metric} <= {limit.max:g}", metric, limit.max, 1)
            if limit.min is not None:
                yield _Bound(f"{metric} >= {limit.min:g}", metric, limit.min, -1)

    def front(self, values: Mapping[Key, Values]) -> list[Key]:
        """Return the keys of the Pareto front, sorted by the first objective. With one objective this is the best key
        only, the earlier of two equal ones."""
        if len(self.metrics) == 1:
            return [min(values, key=lambda key: self.loss(values[key][0]))] if values else []
        losses = {key: self._losses(each) for key, each in values.items()}
        front: list[Key] = []
        # In this order no key dominates an earlier one. Of two objectives, the second is best in the front's last key.
        for key in sorted(losses, key=losses.__getitem__):
            rivals = front if len(self.metrics) > 2 else front[-1:]
            if not any(_at_least_as_good(losses[other], losses[key]) for other in rivals):
                front.append(key)
        return front

    def dominates(self, one: Values, other: Values) -> bool:
        """Whether values are better than others in one objective, and worse in none."""
        return one != other and _at_least_as_good(self._losses(one), self._losses(other))

    def _losses(self, values: Values) -> Values:
        return tuple(as_loss(value, mode) for value, mode in zip(values, self.modes, strict=True))


def _at_least_as_good(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(map(operator.le, one, other))
