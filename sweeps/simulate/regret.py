"""Regret of a simulated search: the distance of the best value so far from the best one in the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sweeps.config.objectives import Objectives, Values
from sweeps.errors import UserError
from sweeps.simulate.recorded_table import CurveTable, RecordedTrial


@dataclass(frozen=True)
class Improvement:
    """A new best value, and the time at which it was reached."""

    time_s: float
    """Simulated time."""
    value: float
    regret: float
    """Distance from the best value in the table for this space."""


@dataclass(frozen=True)
class Scale:
    """Reference values of the first objective in a table, to which a simulated search is compared."""

    best: float
    """Best value of the configurations that satisfy all limits."""
    median: float
    """Median of the values of those configurations that were trained to the end."""
    sign: float
    """1 if larger values are better, else -1."""

    def regret(self, value: float) -> float:
        """Return the distance of a value from the best one; 0 if it is better, as predictions of a forest may be."""
        return max(0.0, self.sign * (self.best - value))

    def normalized(self, regret: float) -> float | None:
        """Return the regret as a share of the distance from the table's best value to its median; None if that is 0."""
        return regret / distance if (distance := abs(self.median - self.best)) else None

    def improvements(self, values: Iterable[tuple[float, float]]) -> list[Improvement]:
        """Return each new best value with its time.

        Args:
            values: Simulated times, in their order, and values.
        """
        found: list[Improvement] = []
        for time_s, value in values:
            if not found or self.sign * value > self.sign * found[-1].value:
                found.append(Improvement(time_s, value, self.regret(value)))
        return found


def scale_of(table: CurveTable, objectives: Objectives) -> Scale:
    """Return the scale of a table.

    Raises:
        UserError: No configuration that was trained to the end has a value and keeps all limits.
    """
    sign = 1.0 if objectives.modes[0] == "max" else -1.0
    ended, every = (_values(trials, objectives) for trials in (table.whole, table.trials))
    if not ended:
        limits = " and keeps search.limits" if objectives.limits else ""
        raise UserError(
            f"--simulate {table.name}: none of the {len(table.whole)} configurations that were trained to the end has "
            f"finite values of {', '.join(objectives.metrics)}{limits}; record more configurations"
        )
    return Scale(max(every, key=lambda value: sign * value), sorted(ended)[len(ended) // 2], sign)


def _values(trials: Iterable[RecordedTrial], objectives: Objectives) -> list[float]:
    """Return the first objective of the trials that have a value and satisfy all limits."""
    found = (_counted([report.metrics for report in trial.reports], objectives) for trial in trials)
    return [values[0] for values in found if values is not None]


def _counted(reports: Iterable[Mapping[str, float]], objectives: Objectives) -> Values | None:
    """Return the values of the trial's best report; None if a report violates a limit."""
    counted: Values | None = None
    for metrics in reports:
        if objectives.violation(metrics) is not None:
            return None
        values = objectives.values(metrics)
        if values is not None and objectives.improves(values, counted):
            counted = values
    return counted
