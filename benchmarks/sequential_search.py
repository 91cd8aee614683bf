"""A search on a function, one trial after another: each trial has its value at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from sweeps.search import OptunaSearcher
from sweeps.space.space import Point

METRIC = "loss"


def search(searcher: OptunaSearcher, loss: Callable[[Point], float]) -> list[tuple[float, Point]]:
    """Search until the searcher for the least ``METRIC`` ends by itself. Returns the value and point of each trial, in
    their order; ``loss`` is the value of a whole training."""
    found: list[tuple[float, Point]] = []
    for number in itertools.count():
        point = searcher.suggest(str(number))
        if not isinstance(point, dict):
            break
        found.append((loss(point), point))
        result = {METRIC: found[-1][0], "training_iteration": 1, "sweeps_completed": True}
        searcher.on_trial_complete(str(number), result)
    return found
