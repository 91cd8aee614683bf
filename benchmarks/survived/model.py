"""Goodput of a training that saves at intervals and loses its work since the last save at each failure: the expected
value by J. T. Daly (2006), and a simulation of the same.

Failures come at random, exponentially distributed, also while the training starts again. Each costs the work since the
last save, and the time to go on.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Training:
    """All times in seconds."""

    interval: float
    """Training between two saves."""
    save: float
    """Time for which a save stops the training."""
    restart: float
    """Time from a failure until the training goes on, with what was saved last."""
    between_failures: float
    """Mean time between failures of any of its nodes: that of a node, divided by their number."""

    def expected_goodput(self) -> float:
        """Part of the time that goes into steps which are kept.

        A segment of interval and save is repeated until no failure falls into it. With failures at a rate of 1/M its
        expected time is ``M exp(R/M) (exp((interval + save)/M) - 1)``.
        """
        mean = self.between_failures
        segment = mean * math.exp(self.restart / mean) * math.expm1((self.interval + self.save) / mean)
        return self.interval / segment

    def simulated_goodput(self, segments: int, seed: int) -> float:
        """Goodput from failures that are drawn one by one, in so many segments that are simulated to their end."""
        draw = random.Random(seed)
        now, failure = 0.0, draw.expovariate(1 / self.between_failures)
        for _ in range(segments):
            needs = self.interval + self.save
            while now + needs > failure:
                now = failure
                failure = now + draw.expovariate(1 / self.between_failures)
                needs = self.restart + self.interval + self.save
            now += needs
        return segments * self.interval / now
