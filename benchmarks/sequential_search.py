"""A search on a function, one trial after another: each trial has its value at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from sweeps.search import OptunaSearcher
from sweeps.space.space import Point

METRIC = "loss"


def search(searcher: OptunaSearcher, loss: Callable[[Point], float]) -> list[tuple[float, Point]]:
    """Search until the searcher ends by itself.

    Args:
        searcher: Searches for the least ``METRIC``; has a number of trials.
        loss: Value of a whole training.

    Returns:
        Value and point of each trial, in their order.
    """
    found: list[tuple[float, Point]] = []
    for number in itertools.count():
        point = searcher.suggest(str(number))
        if not isinstance(point, dict):
            break
        found.append((loss(point), point))
        result = {METRIC: found[-1][0], "training_iteration": 1, "sweeps_completed": True}
        searcher.on_trial_complete(str(number), result)
    return found
