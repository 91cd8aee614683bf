"""Positions at which a scheduler compares trials."""

from __future__ import annotations

import math


class Rungs:
    """Rungs at ``grace``, ``grace * eta``, ``grace * eta**2``, ..., in the unit of a resource."""

    def __init__(self, grace: float, eta: float):
        self._grace, self._eta = grace, eta

    def furthest(self, reached: float) -> float | None:
        """The furthest rung that was reached; None before the first."""
        if reached < self._grace:
            return None
        level = math.floor(math.log(reached / self._grace) / math.log(self._eta) + 1e-9)
        return self._grace * self._eta**level

    def up_to(self, longest: float) -> list[float]:
        """All rungs of a training of this length, ascending, and its end; the first one in any case."""
        last = self.furthest(longest) or self._grace
        levels = round(math.log(last / self._grace) / math.log(self._eta))
        return sorted({*(self._grace * self._eta**level for level in range(levels + 1)), longest})
