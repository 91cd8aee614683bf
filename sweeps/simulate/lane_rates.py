"""Measured speeds of trials that share their workers, for a simulation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sweeps.errors import ConfigError
from sweeps.runtime.lane_number import fastest

RATES_ADVICE = "give --lane-rates the measured rates, such as --lane-rates 1=100,2=180,4=260"
"""Advice for a number of trials whose speed is unknown."""


@dataclass(frozen=True)
class LaneRates:
    """Throughput of a worker group with one trial, and with several."""

    rates: Mapping[int, float]
    """Rate by number of trials, ascending; in any unit, such as tokens per second or trials per hour."""

    @classmethod
    def parsed(cls, text: str) -> LaneRates:
        """Read rates: ``1=100,2=180``, or the text of ``scaling.trials_per_group=auto``.

        Raises:
            ValueError: The text has no rates, lacks the rate of one trial, or has a rate of 0.

        Example:
            >>> LaneRates.parsed("1=100,4=250").rates
            {1: 100.0, 4: 250.0}
            >>> LaneRates.parsed("2 trials a worker group: 1 trains 1,305; 2 train 2,032 tokens a second").rates
            {1: 1305.0, 2: 2032.0}
            >>> LaneRates.parsed("1=995,2=1.86e+03").rates
            {1: 995.0, 2: 1860.0}
        """
        words = re.findall(r"\b(\d+) trains? ([\d,]+)", text)
        pairs = [(lanes, rate.replace(",", "")) for lanes, rate in words]
        pairs = pairs or re.findall(r"\b(\d+)=([\d.]+(?:e[+-]?\d+)?)", text)
        rates = {int(lanes): float(rate) for lanes, rate in pairs}
        if 1 not in rates or not (words or len(pairs) == len(text.split(","))) or min(*rates, *rates.values()) <= 0:
            raise ValueError("rates must be above 0, and one must be for 1 trial")
        return cls(dict(sorted(rates.items())))

    def number(self, wanted: int | Literal["auto"]) -> int:
        """Return the number of trials in each worker group.

        Args:
            wanted: ``scaling.trials_per_group``; ``auto`` finds the number.

        Raises:
            ConfigError: The rate of this number of trials is unknown.
        """
        if wanted == "auto":
            return fastest(self.rates)
        if wanted > max(self.rates):
            known = max(self.rates)
            raise ConfigError(
                f"scaling.trials_per_group={wanted}: --lane-rates has no rate above {known}; {RATES_ADVICE}"
            )
        return wanted

    def speed(self, trials: int) -> float:
        """Return the speed of each trial when this many share a group, relative to a trial alone. Between measured
        rates, it is interpolated linearly.

        >>> LaneRates({1: 100.0, 2: 180.0, 4: 260.0}).speed(3)
        0.7333333333333334
        """
        below = max(each for each in self.rates if each <= trials)
        above = min(each for each in self.rates if each >= trials)
        rate = self.rates[below]
        if above > below:
            rate += (self.rates[above] - rate) * (trials - below) / (above - below)
        return rate / self.rates[1] / trials
