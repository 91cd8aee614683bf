"""Axis of a parameter: positions of numbers, of their logarithms, or of choices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from sweeps.report.report_data import evenly
from sweeps.tracking.values import short

MOST_TICKS = 12


class ParameterAxis:
    """Positions and ticks of a parameter's values."""

    def __init__(self, distribution: BaseDistribution):
        self._distribution = distribution

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest position."""
        match self._distribution:
            case CategoricalDistribution(choices=choices):
                return 0.0, float(len(choices) - 1)
            case FloatDistribution(low=low, high=high) | IntDistribution(low=low, high=high):
                return self.position(low), self.position(high)
        raise TypeError(self._distribution)

    def position(self, value: Any) -> float:
        match self._distribution:
            case CategoricalDistribution(choices=choices):
                return float(choices.index(value))
            case FloatDistribution(log=True) | IntDistribution(log=True):
                return math.log10(value)
        return float(value)

    def fraction(self, position: float) -> float:
        """Position scaled to 0 at the lower end and 1 at the upper."""
        low, high = self.ends
        return (position - low) / (high - low) if high > low else 0.5

    def ticks(self) -> tuple[list[float], list[str]]:
        """Positions of the ticks, and their labels."""
        distribution = self._distribution
        low, high = self.ends
        if isinstance(distribution, CategoricalDistribution):
            chosen = evenly(range(len(distribution.choices)), MOST_TICKS)
            return [float(each) for each in chosen], [str(distribution.choices[each]) for each in chosen]
        evenly_apart = [low + (high - low) * part / 4 for part in range(5)]
        if getattr(distribution, "log", False):
            powers = [float(power) for power in range(math.ceil(low), math.floor(high) + 1)]
            positions = sorted({low, high, *(powers if len(powers) >= 2 else evenly_apart)})
            return self._ticks_of_logarithms(positions)
        if isinstance(distribution, IntDistribution):
            positions = sorted({float(round(position)) for position in evenly_apart})
            return positions, [str(int(position)) for position in positions]
        return evenly_apart, [short(position) for position in evenly_apart]

    def _ticks_of_logarithms(self, positions: list[float]) -> tuple[list[float], list[str]]:
        if isinstance(self._distribution, IntDistribution):
            values = sorted({round(10**position) for position in positions})
            return [math.log10(value) for value in values], [str(value) for value in values]
        return positions, [short(float(f"{10**position:.3g}")) for position in positions]


def set_log_ticks(figure: go.Figure, distributions: Sequence[BaseDistribution]) -> None:
    """Label logarithmic axes with whole numbers instead of Plotly's own ticks (2, 5 and prefixes of units), given the
    distribution of the x axis, and of the y axis if that has one."""
    for distribution, update in zip(distributions, (figure.update_xaxes, figure.update_yaxes), strict=False):
        if getattr(distribution, "log", False):
            positions, texts = ParameterAxis(distribution).ticks()
            update(tickvals=[10**position for position in positions], ticktext=texts)
