"""Forecast of a search from its trials so far: intervals for the remaining time and work."""

from __future__ import annotations

import math
import time

import numpy as np

from sweeps.search.forecast.remaining_work import Floats, SearchSoFar, remaining_work
from sweeps.texts.wording import counted
from sweeps.tracking.forecast_record import LEVEL, Forecast, Interval

DRAWS = 400
WIDER_WORK, SPREAD = 1.35, 0.05
"""Factor and term by which the draws' intervals of time and work are widened in both directions on a logarithmic scale,
since future trials differ from past ones in ways that no trial has shown yet. Both are measured on the problems of
``python benchmarks/forecast.py --tuning`` (split-conformal calibration: Vovk et al., 2005), and reported on others."""


def forecast(search: SearchSoFar, seed: int = 0) -> Forecast:
    """Forecast the cost of the rest of a search.

    Args:
        search: The search so far.
        seed: Seed of the simulations.

    Returns:
        The forecast; if too little is known, it says what is missing.

    Example:
        >>> from sweeps.search.forecast.remaining_work import Course, SearchSoFar
        >>> from sweeps.search.forecast.search_forecast import forecast
        >>> ended = [Course(progress=1.0, held_s=60.0, state="ended")] * 8
        >>> found = forecast(SearchSoFar(trials=ended, to_start=4, places=2))
        >>> [round(each) for each in found.wall_s]
        [114, 120, 126]
    """
    left = remaining_work(search, DRAWS, np.random.default_rng(seed))
    if left is None:
        return Forecast(at=time.time(), missing=("no trial has ended yet",))
    wall_s, held_s = (_central(draws) for draws in (left.wall_s, left.held_s))
    if math.isfinite(search.limit_s):
        wall_s = Interval(*(min(each, search.limit_s) for each in wall_s))
    hours = held_s.scaled(1 / 3600)
    missing: tuple[str, ...] = ()
    if search.stage is not None:
        known = "the time that they take is known when the first of them has ended"
        missing = (f"{counted(search.to_follow, 'trial')} to follow after stage {search.stage}; {known}",)
    return Forecast(
        at=time.time(),
        wall_s=wall_s,
        worker_hours=hours.scaled(search.workers),
        gpu_hours=hours.scaled(search.gpus) if search.gpus else None,
        cost=hours.scaled(search.hourly_cost) if search.hourly_cost else None,
        missing=missing,
        stage=search.stage,
    )


def _central(draws: Floats) -> Interval:
    """Return the median, and an interval with equal probabilities beyond its ends."""
    low, middle, high = map(float, np.quantile(draws, [(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2]))
    if low <= 0:
        return Interval(low, middle, high)
    spread = math.exp(SPREAD)
    return Interval(
        middle * (low / middle) ** WIDER_WORK / spread, middle, middle * (high / middle) ** WIDER_WORK * spread
    )
