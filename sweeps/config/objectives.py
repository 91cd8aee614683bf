"""What a search is after: one metric or several, which way each is better, and what a trial must stay within."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from sweeps.config.search import Limit, Mode, Search

Key = TypeVar("Key", bound=Hashable)
Values = tuple[float, ...]
"""One value for each objective, in their order."""


BROKEN = 1e6
"""The excess of a value that is not finite: far beyond any bound, and still a number to a sampler's model."""


class _Bound(NamedTuple):
    """One end of a limit."""

    name: str
    metric: str
    value: float
    sign: int
    """1 if larger values break it, -1 if smaller ones do."""


@dataclass(frozen=True)
class Objectives:
    """The metrics that are optimised; the first one is what schedulers and the best checkpoint go by."""

    metrics: tuple[str, ...]
    modes: tuple[Mode, ...]
    limits: Mapping[str, Limit] = field(default_factory=dict)

    @classmethod
    def of(cls, search: Search) -> Objectives:
        return cls(search.metrics, search.modes, search.limits)

    def values(self, metrics: Mapping[str, float]) -> Values | None:
        """What a report says of all objectives; None if it lacks one, or one is not finite."""
        values = tuple(metrics.get(name, math.nan) for name in self.metrics)
        return values if all(math.isfinite(value) for value in values) else None

    def improves(self, new: Values, old: Values | None) -> bool:
        """Whether a report is better than an earlier one of the same trial: by the first objective."""
        if old is None:
            return True
        return new[0] < old[0] if self.modes[0] == "min" else new[0] > old[0]

    def violation(self, metrics: Mapping[str, float]) -> str | None:
        """The first limit that a report breaks, in words; None if it breaks none."""
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
        """Names of the limits' single bounds, as ``system/memory_mib <= 2000``."""
        return [bound.name for bound in self._bounds()]

    def excesses(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """By how much a report breaks each bound whose metric it has, relative to the bound; zero if it keeps it."""
        excesses: dict[str, float] = {}
        for bound in self._bounds():
            if (value := metrics.get(bound.metric)) is not None:
                excess = bound.sign * (value - bound.value) / (abs(bound.value) or 1.0)
                excesses[bound.name] = max(0.0, excess) if math.isfinite(excess) else BROKEN
        return excesses

    def _bounds(self) -> Iterator[_Bound]:
        for metric, limit in self.limits.items():
            if limit.max is not None:
                yield _Bound(f"{metric} <= {limit.max:g}", metric, limit.max, 1)
            if limit.min is not None:
                yield _Bound(f"{metric} >= {limit.min:g}", metric, limit.min, -1)

    def front(self, values: Mapping[Key, Values]) -> list[Key]:
        """The keys of the Pareto front, best first by the first objective: no other is as good in every objective and
        better in one. With one objective that is the best alone, the earlier of two equal ones."""
        front: list[Key] = []
        # In this order nothing dominates what came before it.
        for key in sorted(values, key=lambda each: self._losses(values[each])):
            mine = self._losses(values[key])
            if not any(_at_least_as_good(self._losses(values[other]), mine) for other in front):
                front.append(key)
        return front

    def _losses(self, values: Values) -> Values:
        return tuple(value if mode == "min" else -value for value, mode in zip(values, self.modes, strict=True))


def _at_least_as_good(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True))
