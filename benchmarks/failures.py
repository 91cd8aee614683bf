"""Trials that fail with and without ``search.avoid_failures``, in spaces in which a part of the points fails.

A search has 120 trials, one after another, of five parameters of a training; those that fail among the last hundred are
counted. The best point does not fail, and lies near to points that do: its regret says whether these are avoided with
good ones. Regret is normalized: 0 is the optimum, 1 the median point.

    python benchmarks/failures.py --write benchmarks/search_log.md      # half an hour of processor time
    python benchmarks/failures.py --seeds 2 --samplers random
"""

from __future__ import annotations

import argparse
import functools
import itertools
import logging
import math
import random
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from pydantic import TypeAdapter
from results_document import markdown_table, write_between_marks
from searched.regrets import with_interval

from sweeps.config.samplers import Sampler
from sweeps.config.space import CategoricalDistribution, FloatDistribution, IntDistribution
from sweeps.search import FailureAdvisor, OptunaSearcher, build_sampler
from sweeps.search.unit_cube import UnitCube
from sweeps.space.space import Point, Space
from sweeps.space.suggester import RandomDraws

TRIALS, FIRST, RANDOM_POINTS = 120, 20, 2001
METRIC = "loss"
LR, OPTIMIZER, BATCH_SIZE, WIDTH = "train.lr", "train.optimizer", "train.batch_size", "model.width"
SPACE = Space(
    {
        LR: FloatDistribution(type="float", low=1e-5, high=1.0, log=True),
        "train.weight_decay": FloatDistribution(type="float", low=0.0, high=1.0),
        BATCH_SIZE: IntDistribution(type="int", low=8, high=512, log=True),
        WIDTH: IntDistribution(type="int", low=16, high=1024, log=True),
        OPTIMIZER: CategoricalDistribution(type="categorical", choices=["adamw", "sgd"]),
    }
)
CUBE = UnitCube(SPACE)
BEST = {LR: 5e-3, "train.weight_decay": 0.1, BATCH_SIZE: 64, WIDTH: 200, OPTIMIZER: "adamw"}
FAILURES: dict[str, Callable[[Point, random.Random], str | None]] = {
    "learning rate": lambda point, chance: "diverged" if point[LR] > 1e-2 else None,
    "learning rate of one optimizer": lambda point, chance: (
        "diverged" if point[LR] > 1e-2 and point[OPTIMIZER] == "adamw" else None
    ),
    "memory": lambda point, chance: "CUDA out of memory" if point[BATCH_SIZE] * point[WIDTH] > 2**14 else None,
    "chance": lambda point, chance: "RuntimeError" if chance.random() < 0.2 else None,
}
"""The error with which a trial at a point fails, if it does, by what decides on it."""
SAMPLERS = ("random", "tpe")


class Result(NamedTuple):
    """One search."""

    failed: int
    """Trials that failed after the first ones."""
    regret: float
    """Normalized regret of its best trial."""


class Searcher(OptunaSearcher):
    """Searcher whose trials fail with an error of which it is told."""

    error = ""

    def why_failed(self, trial_id: str) -> str:
        """The error."""
        return self.error


def loss(point: Point) -> float:
    """Distance from the best point in the unit cube."""
    return float(np.linalg.norm(CUBE.vector(point) - CUBE.vector(BEST)))


@functools.cache
def median_loss() -> float:
    """Loss of the median point, which is the regret of 1."""
    return float(np.median([loss(point) for point in random_points()]))


@functools.cache
def random_points() -> list[dict[str, Any]]:
    """Random points of the space."""
    draws = RandomDraws(0)
    return [SPACE.sample(draws, lambda path: None) for _ in range(RANDOM_POINTS)]


def run(kind: str, sampler: str, seed: int, *, avoid: bool) -> Result:
    """Search once."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    config = TypeAdapter[Any](Sampler).validate_python({"kind": sampler})
    searcher = Searcher(
        SPACE,
        metric=METRIC,
        mode="min",
        num_trials=TRIALS,
        sampler=build_sampler(config, seed, SPACE),
        advisors=[FailureAdvisor(SPACE)] if avoid else [],
    )
    chance, failed, best = random.Random(seed), 0, math.inf
    for number in itertools.count():
        point = searcher.suggest(str(number))
        if not isinstance(point, dict):
            break
        error = FAILURES[kind](point, chance)
        if error is None:
            best = min(best, value := loss(point))
            result = {METRIC: value, "training_iteration": 1, "sweeps_completed": True}
            searcher.on_trial_complete(str(number), result)
        else:
            failed += number >= FIRST
            searcher.error = error
            searcher.on_trial_complete(str(number), error=True)
    return Result(failed, best / median_loss())


def share_failing(kind: str) -> float:
    """Share of random points that fail."""
    chance = random.Random(0)
    return float(np.mean([FAILURES[kind](point, chance) is not None for point in random_points()]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--kinds", nargs="+", choices=FAILURES, default=list(FAILURES))
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", type=Path, help="Markdown file whose table is replaced")
    options = parser.parse_args()
    rows, seeds = [], range(options.seeds)
    with ProcessPoolExecutor(options.processes) as pool:
        futures = {
            (kind, sampler, avoid): [pool.submit(run, kind, sampler, seed, avoid=avoid) for seed in seeds]
            for kind, sampler, avoid in itertools.product(options.kinds, options.samplers, (False, True))
        }
        found = {key: [each.result() for each in several] for key, several in futures.items()}
    for kind, sampler in itertools.product(options.kinds, options.samplers):
        without, advised = found[kind, sampler, False], found[kind, sampler, True]
        row = [kind, sampler, f"{share_failing(kind):.0%}"]
        row += [with_interval(np.array([each.failed for each in results]), digits=1) for results in (without, advised)]
        row += [with_interval(np.array([each.regret for each in results])) for results in (without, advised)]
        rows.append(row)
    headers = ["failures by", "sampler", "points that fail", "failed trials", "avoiding", "regret", "avoiding"]
    text = f"{markdown_table(headers, rows, left=2)}\n\n({options.seeds} seeds)"
    print(text)
    if options.write:
        write_between_marks(options.write, {"failures": text})


if __name__ == "__main__":
    main()
