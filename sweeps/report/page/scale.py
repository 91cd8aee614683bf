"""Places on an axis: of numbers, of their logarithms, or of choices."""

from __future__ import annotations

import math
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from sweeps.report.page.report_data import evenly
from sweeps.tracking.values import short

MOST_TICKS = 12


class Scale:
    """Where on an axis a parameter's values are."""

    def __init__(self, distribution: BaseDistribution):
        """
        Args:
            distribution: What the parameter can be.
        """
        self._distribution = distribution

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest place."""
        match self._distribution:
            case CategoricalDistribution(choices=choices):
                return 0.0, float(len(choices) - 1)
            case FloatDistribution(low=low, high=high) | IntDistribution(low=low, high=high):
                return self.place(low), self.place(high)
        raise TypeError(self._distribution)

    def place(self, value: Any) -> float:
        match self._distribution:
            case CategoricalDistribution(choices=choices):
                return float(choices.index(value))
            case FloatDistribution(log=True) | IntDistribution(log=True):
                return math.log10(value)
        return float(value)

    def part(self, place: float) -> float:
        """From 0 at the lowest place to 1 at the highest."""
        low, high = self.ends
        return (place - low) / (high - low) if high > low else 0.5

    def ticks(self) -> tuple[list[float], list[str]]:
        """Places and what is written there."""
        distribution = self._distribution
        low, high = self.ends
        if isinstance(distribution, CategoricalDistribution):
            chosen = evenly(range(len(distribution.choices)), MOST_TICKS)
            return [float(each) for each in chosen], [str(distribution.choices[each]) for each in chosen]
        if getattr(distribution, "log", False):
            places = [float(power) for power in range(math.ceil(low), math.floor(high) + 1)]
            if len(places) < 2:
                places = [low + (high - low) * part / 4 for part in range(5)]
            places = sorted({low, *places, high})
            return places, [short(float(f"{10**place:.3g}")) for place in places]
        places = [low + (high - low) * part / 4 for part in range(5)]
        if isinstance(distribution, IntDistribution):
            places = sorted({float(round(place)) for place in places})
            return places, [str(int(place)) for place in places]
        return places, [short(place) for place in places]
