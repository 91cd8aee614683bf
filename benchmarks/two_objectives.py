"""Quality of searches for two objectives at equal budgets: Sweeps, Optuna and Ray Tune, on functions and tables.

    python benchmarks/two_objectives.py --write benchmarks/search_log.md --processes 2          # half an hour
    python benchmarks/two_objectives.py --problems zdt1 --budgets 40 --seeds 4
    python benchmarks/two_objectives.py --table /tmp/tables/digits.parquet           # recorded: record_tables.py

Four workers train trials to their end, one after another. The objectives of a table are the loss and the seconds of a
training. Prints how much of the hypervolume of the best front is missing: 0 is that front, 1 a search without a point
that beats the reference point, which is worse in both objectives than three of four random points.
"""

from __future__ import annotations

import argparse
import functools
import heapq
import itertools
import logging
import math
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from curve_files import read_space
from of_tune import SearchOfTune
from results_document import markdown_table, write_between_marks
from searched.regrets import with_interval

from sweeps.config.search import Stop
from sweeps.config.space import FloatDistribution
from sweeps.simulate.recorded_table import Report, read_table
from sweeps.simulate.simulation import Simulation
from sweeps.simulate.surrogate import ForestCurve
from sweeps.space.space import Point, Space
from sweeps.space.suggester import RandomDraws

NAMES = ("first", "second")
WORKERS = 4
RANDOM_POINTS = 2001
REFERENCE_QUANTILE = 0.75
DIMENSIONS = 6
FUNCTIONS = ("zdt1", "zdt2", "dtlz2")

Values = tuple[float, float]
"""Both objectives, which are minimised."""


# --- problems --------------------------------------------------------------------------------------------------


@dataclass
class Problem:
    """A search for two objectives whose best front is known."""

    space: Space
    curve: Callable[[Point], list[Report]]
    """The one report of a trial, after a whole training."""
    full_s: float
    """Mean seconds of a training."""
    reference: Values
    best: float
    """Hypervolume of the best front."""

    def missing(self, found: Sequence[Values]) -> float:
        """Part of the best front's hypervolume that a search has not found."""
        return 1 - hypervolume(found, self.reference) / self.best


def hypervolume(points: Sequence[Values], reference: Values) -> float:
    """Area that points dominate, up to the reference point.

    >>> hypervolume([(0.0, 1.0), (1.0, 0.0), (1.5, 1.5)], (2.0, 2.0))
    3.0
    """
    area, height = 0.0, reference[1]
    for first, second in sorted(points):
        if first < reference[0] and second < height:
            area += (reference[0] - first) * (height - second)
            height = second
    return area


def zdt(values: Sequence[float], power: float) -> Values:
    """ZDT1 (power 0.5) and ZDT2 (power 2) of Zitzler, Deb and Thiele, https://doi.org/10.1162/106365600568202."""
    first, *rest = values
    distance = 1 + 9 * sum(rest) / len(rest)
    return first, distance * (1 - (first / distance) ** power)


def dtlz2(values: Sequence[float]) -> Values:
    """DTLZ2 of Deb, Thiele, Laumanns and Zitzler (2002), with two objectives: its front is a quarter of a circle."""
    first, *rest = values
    radius = 1 + sum((each - 0.5) ** 2 for each in rest)
    return radius * math.cos(first * math.pi / 2), radius * math.sin(first * math.pi / 2)


BY_NAME: dict[str, Callable[[Sequence[float]], Values]] = {
    "zdt1": lambda values: zdt(values, 0.5),
    "zdt2": lambda values: zdt(values, 2.0),
    "dtlz2": dtlz2,
}


def function_problem(name: str) -> Problem:
    """A function of six dimensions; its best front is computed at 10,000 points."""
    space = Space({f"x{number}": FloatDistribution(type="float", low=0, high=1) for number in range(DIMENSIONS)})
    function = BY_NAME[name]
    optimum = 0.5 if name == "dtlz2" else 0.0
    front = [function([first, *[optimum] * (DIMENSIONS - 1)]) for first in np.linspace(0, 1, 10_000)]

    def curve(point: Point) -> list[Report]:
        values = function([float(point[f"x{number}"]) for number in range(DIMENSIONS)])
        return [Report(1, 1.0, dict(zip(NAMES, values, strict=True)))]

    return _with_reference(space, curve, 1.0, front)


def table_problem(path: Path, metric: str) -> Problem:
    """A surrogate of recorded curves: the loss and the seconds of a training. The best front is that of all recorded
    trainings."""
    space = read_space(path)
    table = read_table(path, space, lambda each: None, [metric])
    forest = ForestCurve(table, space, [metric])
    front = [(trial.reports[-1].metrics[metric], trial.reports[-1].elapsed_s) for trial in table.whole]
    mean_s = float(np.mean([seconds for _, seconds in front]))

    def curve(point: Point) -> list[Report]:
        last = forest.curve(point)[-1]
        return [Report(1, last.elapsed_s, {"first": last.metrics[metric], "second": last.elapsed_s})]

    return _with_reference(space, curve, mean_s, front)


def _with_reference(
    space: Space, curve: Callable[[Point], list[Report]], full_s: float, front: Sequence[Values]
) -> Problem:
    draws = RandomDraws(0)
    drawn = [values_of(curve(space.sample(draws, lambda path: None))[-1].metrics) for _ in range(RANDOM_POINTS)]
    first, second = np.quantile(np.array(drawn), REFERENCE_QUANTILE, axis=0)
    reference = float(first), float(second)
    return Problem(space, curve, full_s, reference, hypervolume(front, reference))


def values_of(metrics: Any) -> Values:
    """Both objectives of a report."""
    return metrics["first"], metrics["second"]


@functools.cache
def loaded(name: str, table: Path | None, metric: str) -> Problem:
    """A problem by its name; a table's surrogate is fitted once in each process."""
    return function_problem(name) if table is None else table_problem(table, metric)


# --- methods ---------------------------------------------------------------------------------------------------


def ours(kind: str) -> Callable[[Problem, int, float], list[Values]]:
    """A sampler of ours."""

    def run(problem: Problem, seed: int, limit_s: float) -> list[Values]:
        from pydantic import TypeAdapter

        from sweeps.config.samplers import Sampler
        from sweeps.search import build_sampler
        from sweeps.search.study_search import StudySearch

        config = TypeAdapter[Any](Sampler).validate_python({"kind": kind})
        sampler = build_sampler(config, seed, problem.space, objectives=len(NAMES))
        searcher = StudySearch(problem.space, metric=NAMES, mode=("min", "min"), sampler=sampler)
        return simulated(searcher, problem, limit_s)

    return run


def ray_optuna(problem: Problem, seed: int, limit_s: float) -> list[Values]:
    """Stock Ray Tune: ``OptunaSearch``."""
    from ray.tune.search.optuna import OptunaSearch

    def define(trial: Any) -> None:
        points.append(problem.space.sample(trial, lambda path: None))

    points: list[dict[str, Any]] = []
    searcher = SearchOfTune(OptunaSearch(define, metric=list(NAMES), mode=["min", "min"], seed=seed), points)
    return simulated(searcher, problem, limit_s)


def simulated(searcher: Any, problem: Problem, limit_s: float) -> list[Values]:
    """Search in simulated time."""
    from sweeps.config.objectives import Objectives
    from sweeps.search.schedulers.scheduler import Scheduler

    class Source:
        def curve(self, point: Point) -> list[Report]:
            return problem.curve(point)

    simulation = Simulation(
        searcher,
        Scheduler(Objectives(NAMES, ("min", "min"))),
        Source(),
        WORKERS,
        Stop(wall_hours=limit_s * (1 + 1e-9) / 3600),  # a report at its end counts
    )
    return [values_of(report.metrics) for report in simulation.run().reports]


def optuna_native(kind: str) -> Callable[[Problem, int, float], list[Values]]:
    """Optuna alone, ``ask`` and ``tell`` from parallel workers, with a sampler as it is by default."""

    def run(problem: Problem, seed: int, limit_s: float) -> list[Values]:
        import optuna

        made = {"tpe": optuna.samplers.TPESampler, "nsga2": optuna.samplers.NSGAIISampler}[kind]
        study = optuna.create_study(directions=["minimize", "minimize"], sampler=made(seed=seed))
        running: list[tuple[float, int, Any, Values]] = []
        order, found = itertools.count(), list[Values]()

        def start(now: float) -> None:
            trial = study.ask()
            report = problem.curve(problem.space.sample(trial, lambda path: None))[-1]
            heapq.heappush(running, (now + report.elapsed_s, next(order), trial, values_of(report.metrics)))

        for _ in range(WORKERS):
            start(0.0)
        while running[0][0] <= limit_s:
            now, _, trial, values = heapq.heappop(running)
            study.tell(trial, values)
            found.append(values)
            start(now)
        return found

    return run


METHODS: dict[str, Callable[[Problem, int, float], list[Values]]] = {
    "random": ours("random"),
    "tpe": ours("tpe"),
    "curves": ours("curves"),
    "nsga2": ours("nsga2"),
    "gp": ours("gp"),
    "ray optuna": ray_optuna,
    "optuna tpe": optuna_native("tpe"),
    "optuna nsga2": optuna_native("nsga2"),
}
LARGEST_BUDGETS = {"gp": 40}
"""Budgets above which a method is left out: a suggestion of the Gaussian process takes seconds."""


# --- the benchmark ---------------------------------------------------------------------------------------------


def measure(method: str, name: str, table: Path | None, metric: str, seed: int, budget: int) -> float:
    """Missing part of the hypervolume at the end of one search."""
    import optuna
    import torch

    torch.set_num_threads(1)  # several searches run at a time
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    problem = loaded(name, table, metric)
    return problem.missing(METHODS[method](problem, seed, budget * problem.full_s / WORKERS))


def table_of(found: dict[tuple[str, str, int], list[float]], methods: Sequence[str], budget: int) -> str:
    """Mean over seeds for each problem, with 95 % confidence intervals, and the mean rank."""
    from scipy.stats import rankdata

    names = list(dict.fromkeys(name for _, name, _ in found))
    ranks = np.array(
        [rankdata([found[method, name, budget] for method in methods], axis=0).mean(axis=1) for name in names]
    ).mean(axis=0)
    best = {name: min(methods, key=lambda method: float(np.mean(found[method, name, budget]))) for name in names}
    rows = []
    for method, rank in zip(methods, ranks, strict=True):
        cells = [with_interval(np.array(found[method, name, budget]), bold=best[name] == method) for name in names]
        rows.append([method, *cells, f"{rank:.2f}"])
    return markdown_table(["method", *names, "mean rank"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--problems", nargs="*", choices=FUNCTIONS, help="functions; default: all")
    parser.add_argument("--table", nargs="+", type=Path, default=[], help="Parquet files of learning curves, too")
    parser.add_argument("--metric", default="eval/loss", help="column of the tables that is the first objective")
    parser.add_argument("--budgets", nargs="+", type=int, default=[40, 160])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--write", type=Path, help="Markdown file whose table is replaced")
    options = parser.parse_args()
    functions = FUNCTIONS if options.problems is None else options.problems
    sources: list[tuple[str, Path | None]] = [(name, None) for name in functions]
    sources += [(path.stem, path) for path in options.table]
    parts = []
    with ProcessPoolExecutor(options.processes) as pool:
        for budget in options.budgets:
            methods = [name for name in options.methods if budget <= LARGEST_BUDGETS.get(name, budget)]
            futures = {
                (method, name, budget): [
                    pool.submit(measure, method, name, table, options.metric, seed, budget)
                    for seed in range(options.seeds)
                ]
                for name, table in sources
                for method in methods
            }
            found = {key: [each.result() for each in several] for key, several in futures.items()}
            title = f"Budget of {budget} trainings, {WORKERS} workers, {options.seeds} seeds; missing hypervolume:"
            parts.append(f"{title}\n\n{table_of(found, methods, budget)}")
            print(f"{parts[-1]}\n", flush=True)
    if options.write:
        write_between_marks(options.write, {"two objectives": "\n\n".join(parts)})


if __name__ == "__main__":
    main()
