"""Search for the number of lanes with which a worker group has the highest throughput, measured while it trains."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

GAIN = 1.05
"""Minimum ratio of throughputs for a doubled number of lanes to be kept."""
SKIPPED, MEASURED = 6, 14
"""Number of steps that are skipped after a change of the lanes, because forward and backward passes are recorded again,
and number of steps that are measured after that."""


class LaneNumber:
    """Finds the number of lanes with the highest throughput: doubles it as long as that gains."""

    def __init__(self, most: int, start: int = 1, *, is_found: bool = False) -> None:
        """
        Args:
            most: Largest number of lanes.
            start: Number of lanes at the beginning.
            is_found: Whether the number is final, since another group has found it.
        """
        self.number, self.is_found = min(start, most), is_found or most == 1
        self._most = most
        self._rates: dict[int, float] = {}
        self._measured: list[float] = []
        self._to_skip = SKIPPED

    def add(self, lanes: int, tokens: int, seconds: float) -> bool:
        """Record a step of the group; return whether the number has now changed or become final.

        Args:
            lanes: Number of lanes that made the step.
            tokens: Tokens of all these lanes.
            seconds: Duration in seconds.
        """
        if self.is_found:
            return False
        if lanes != self.number:  # a lane is empty for a moment; what was measured with all of them stays
            self._to_skip = SKIPPED
            return False
        if self._to_skip:
            self._to_skip -= 1
            return False
        self._measured.append(tokens / seconds)
        if len(self._measured) < MEASURED:
            return False
        self._rates[lanes] = median(self._measured)
        self._measured, self._to_skip = [], SKIPPED
        if (found := fastest(self._rates)) < lanes:
            self.number, self.is_found = found, True
        elif lanes == self._most:
            self.is_found = True
        else:
            self.number = min(2 * lanes, self._most)
        return True

    def take(self, number: int) -> None:
        """Adopt the number that another group has found; it also determines how many trials the sweep starts."""
        self.number, self.is_found = min(number, self._most), True

    @property
    def reason(self) -> str:
        """Describe the measured rates: ``1 trains 100; 2 train 180 tokens a second``."""
        parts = [f"{lanes} train{'s'[lanes > 1 :]} {rate:,.0f}" for lanes, rate in self._rates.items()]
        return f"{'; '.join(parts)} tokens a second"


def fastest(rates: Mapping[int, float]) -> int:
    """Return the number of lanes from which a further doubling gains less than ``GAIN``.

    >>> fastest({1: 100.0, 2: 180.0, 4: 183.0, 8: 400.0})
    2

    Args:
        rates: Throughput of a group per second, by number of lanes, ascending.
    """
    (number, rate), *others = rates.items()
    for lanes, other in others:
        if other < GAIN * rate:
            return number
        number, rate = lanes, other
    return number
