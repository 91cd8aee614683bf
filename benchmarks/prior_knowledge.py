"""Gain by good prior knowledge and loss by wrong one: priors of a person, and earlier sweeps, for TPE on functions.

A search has 40 trials, one after another, on a Hartmann function of three or six dimensions. A prior is the optimum
moved along every axis by 0.08 (near) or by half of the range (far). An earlier sweep has 60 trials of TPE on the same
function, on one that is moved along every axis, or on its negative. Regret is normalized: 0 is the optimum, 1 the
median point.

    python benchmarks/prior_knowledge.py --write benchmarks/measurements.md      # an hour of processor time
    python benchmarks/prior_knowledge.py --seeds 2 --dimensions 3 --only priors
"""

from __future__ import annotations

import argparse
import functools
import itertools
import logging
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import optuna
from results_document import markdown_table, write_between_marks
from search_problems import HartmannProblem
from searched.regrets import with_interval
from sequential_search import METRIC, search

from hartmann import Hartmann  # isort: skip - search_problems has made it importable

from sweeps.config.samplers import TPESampler
from sweeps.config.space import FloatDistribution, Prior
from sweeps.search import EarlierSweep, EarlierTrials, OptunaSearcher, PriorAdvisor, build_sampler, points_to_retry
from sweeps.space.space import Space

TRIALS, EARLIER_TRIALS = 40, 60
SHOWN = (10, 20, 40)
"""Numbers of trials after which the regret is shown."""
NONE = "none"
PRIORS = {
    NONE: None,
    "near, confidence 0.5": (0.08, 0.5),
    "near, confidence 0.8": (0.08, 0.8),
    "far, confidence 0.5": (0.5, 0.5),
    "far, confidence 0.8": (0.5, 0.8),
}
"""Distances along every axis from the optimum, and confidences, by name."""
EARLIER = {
    NONE: None,
    "the same function": (0.0, 1),
    "moved by 0.1": (0.1, 1),
    "moved by 0.4": (0.4, 1),
    "negative": (0.0, -1),
}
"""Distances along every axis from the function that is searched, and signs, by name."""
TPE = TPESampler(kind="tpe")


def with_prior(dimensions: int, name: str, seed: int) -> list[float]:
    """Search with a prior; the normalized regret of the best trial so far, after each trial."""
    problem = HartmannProblem("", Hartmann(dimensions))
    distributions = problem.function.space
    if (prior := PRIORS[name]) is not None:
        distance, confidence = prior
        for path, distribution in distributions.items():
            assert isinstance(distribution, FloatDistribution)
            distribution.prior = Prior(value=(problem.function.best[path] + distance) % 1, confidence=confidence)
    space = Space(distributions)
    searcher = OptunaSearcher(
        space,
        metric=METRIC,
        mode="min",
        num_trials=TRIALS,
        sampler=build_sampler(TPE, seed, space),
        advisors=[PriorAdvisor(space, seed)],
    )
    return best_regrets(searcher, problem)


def with_earlier_sweep(dimensions: int, name: str, seed: int) -> list[float]:
    """Search with an earlier sweep; the normalized regret of the best trial so far, after each trial."""
    problem = HartmannProblem("", Hartmann(dimensions))
    sweeps = [] if (earlier := EARLIER[name]) is None else [earlier_sweep(dimensions, *earlier, seed)]
    known = EarlierTrials(sweeps, problem.space, "min", seed) if sweeps else None
    searcher = OptunaSearcher(
        problem.space,
        metric=METRIC,
        mode="min",
        num_trials=TRIALS,
        sampler=build_sampler(TPE, seed, problem.space, known),
        points=points_to_retry(sweeps, problem.space),
    )
    return best_regrets(searcher, problem)


@functools.cache
def earlier_sweep(dimensions: int, distance: float, sign: int, seed: int) -> EarlierSweep:
    """Sweep on a function, or on its negative if the sign is -1."""
    function = Hartmann(dimensions, shift=distance)
    space = Space(function.space)
    searcher = OptunaSearcher(
        space,
        metric=METRIC,
        mode="min",
        num_trials=EARLIER_TRIALS,
        sampler=build_sampler(TPE, 1000 + seed, space),
    )
    found = search(searcher, lambda point: sign * function.regret(dict(point)))
    found.sort(key=lambda each: each[0])
    return EarlierSweep("earlier", [point for _, point in found], [value for value, _ in found])


def best_regrets(searcher: OptunaSearcher, problem: HartmannProblem) -> list[float]:
    """Normalized regret of the best trial so far, after each trial of a search."""
    found = search(searcher, lambda point: problem.function.regret(dict(point)))
    return list(itertools.accumulate((value / problem.median for value, _ in found), min))


def measure(kind: str, dimensions: int, name: str, seed: int) -> list[float]:
    """One search, in a process of its own."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    run, _ = KINDS[kind]
    return run(dimensions, name, seed)


KINDS: dict[str, tuple[Callable[[int, str, int], list[float]], list[str]]] = {
    "priors": (with_prior, list(PRIORS)),
    "earlier sweeps": (with_earlier_sweep, list(EARLIER)),
}
"""Searches and the names of what they know, by the name of their table."""


def table(first: str, found: dict[tuple[int, str], list[list[float]]]) -> str:
    """Mean regrets with 95 % confidence intervals after ``SHOWN`` trials; a row for each dimension and name."""
    rows = []
    for (dimensions, name), searches in found.items():
        regrets = np.array(searches)
        cells = [with_interval(regrets[:, trials - 1]) for trials in SHOWN]
        rows.append([str(dimensions), name, *cells])
    return markdown_table(["dimensions", first, *(f"after {trials} trials" for trials in SHOWN)], rows, left=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--dimensions", nargs="+", type=int, choices=[3, 6], default=[3, 6])
    parser.add_argument("--only", choices=KINDS, help="one of the two tables")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", type=Path, help="Markdown file whose tables are replaced")
    options = parser.parse_args()
    contents, seeds = {}, range(options.seeds)
    with ProcessPoolExecutor(options.processes) as pool:
        for kind in [options.only] if options.only else KINDS:
            _, names = KINDS[kind]
            futures = {
                (dimensions, name): [pool.submit(measure, kind, dimensions, name, seed) for seed in seeds]
                for dimensions, name in itertools.product(options.dimensions, names)
            }
            found = {key: [each.result() for each in several] for key, several in futures.items()}
            contents[kind] = f"{table(kind.removesuffix('s'), found)}\n\n({options.seeds} seeds)"
            print(f"{contents[kind]}\n", flush=True)
    if options.write:
        write_between_marks(options.write, contents)


if __name__ == "__main__":
    main()
