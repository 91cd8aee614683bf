"""Positions at which a scheduler compares trials."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

SAME = 1e-8
"""Relative distance below which two rungs are the same."""


def amount_in(result: Mapping[str, Any], resource: str) -> float | None:
    """Return a report's amount of a resource; None if it is missing, or if a user's function reports infinity or
    NaN."""
    amount: float | None = result.get(resource)
    return amount if amount is not None and math.isfinite(amount) else None


def has_reached(amount: float, rung: float) -> bool:
    """Whether an amount of a resource is at a rung or beyond it. A fraction may be slightly below the rung that it is
    at, such as 0.3 epochs below 0.1 * 3."""
    return amount >= rung * (1 - SAME)


class Rungs:
    """Rungs at ``grace``, ``grace * eta``, ``grace * eta**2``, ..., in the unit of a resource."""

    def __init__(self, grace: float, eta: float):
        self._grace, self._eta = grace, eta

    def furthest(self, reached: float) -> float | None:
        """Return the furthest rung that was reached; None before the first, and for infinity, which earlier
        versions recorded."""
        if not has_reached(reached, self._grace) or math.isinf(reached):
            return None
        level = math.floor(math.log(reached / self._grace) / math.log(self._eta) + 1e-9)
        return self._grace * self._eta ** max(level, 0)

    def after(self, rung: float) -> float:
        """Return the rung after another one."""
        return rung * self._eta

    def up_to(self, longest: float) -> list[float]:
        """Return all rungs of a training of this length, ascending, and its end; always includes the first rung."""
        last = self.furthest(longest) or self._grace
        levels = round(math.log(last / self._grace) / math.log(self._eta))
        rungs = [self._grace * self._eta**level for level in range(levels + 1)]
        # 0.3 * 3**2 is below 2.7: one of two rungs at the end.
        return sorted([*(rung for rung in rungs if not math.isclose(rung, longest, rel_tol=SAME)), longest])
