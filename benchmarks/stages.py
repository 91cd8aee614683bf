"""Gain and loss by a stage of cheaper trainings (``search.stages``), at equal budgets, on functions.

A training costs 1, and one of the stage a tenth; the budget is 40. Without stages TPE has 40 trainings; with one it has
100 cheap ones, and then 30. A stage's values are those of the same Hartmann function, moved along every axis by 0 (only
cheaper), 0.1 or 0.3, or of its negative, which misleads. Regret is normalized: 0 is the optimum, 1 the median point.

    python benchmarks/stages.py --write benchmarks/measurements.md      # minutes
    python benchmarks/stages.py --seeds 2 --dimensions 3
"""

from __future__ import annotations

import argparse
import itertools
import logging
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import optuna
from results_document import markdown_table, write_between_marks
from search_problems import HartmannProblem
from sequential_search import METRIC, search

from hartmann import Hartmann  # isort: skip - search_problems has made it importable

from scipy.stats import kendalltau, t

from sweeps.config.samplers import TPESampler
from sweeps.search import EarlierSweep, EarlierTrials, OptunaSearcher, build_sampler
from sweeps.search.rank_agreement import agreement
from sweeps.search.samplers.transfer import distinct_best
from sweeps.space.space import Point

BUDGET, STAGE_TRIALS, COST, KEEP = 40, 100, 0.1, 5
PROXIES = ("moved by 0", "moved by 0.1", "moved by 0.3", "negative")
METHODS = ("no stage", "best 5 points only", "stage")


@dataclass(frozen=True)
class Result:
    """One search."""

    regret: float
    """Normalized regret of its best trial."""
    tau: float | None = None
    """Agreement that it has measured."""
    trust: float | None = None
    """Trust of the sampler in the stage at the end."""


def loss(function: Hartmann, point: Point) -> float:
    """Value of a whole training."""
    return function.regret(dict(point))


def proxy_loss(function: Hartmann, proxy: str, point: Point) -> float:
    """Value of a training of the stage."""
    if proxy == "negative":
        return -loss(function, point)
    return loss(Hartmann(function.dimensions, shift=float(proxy.removeprefix("moved by "))), point)


def run(dimensions: int, proxy: str, method: str, seed: int) -> Result:
    """Search once, and return what it found."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    problem = HartmannProblem("", Hartmann(dimensions))
    tpe, space = TPESampler(kind="tpe"), problem.space
    staged: list[tuple[float, Point]] = []
    earlier: EarlierTrials | None = None
    points: list[Point] = []
    if method != "no stage":
        sampler = build_sampler(tpe, seed + 1, space)
        first = OptunaSearcher(space, metric=METRIC, mode="min", num_trials=STAGE_TRIALS, sampler=sampler)
        staged = search(first, lambda point: proxy_loss(problem.function, proxy, point))
        staged.sort(key=lambda each: each[0])
        sweep = EarlierSweep("stage 1", [point for _, point in staged], [value for value, _ in staged])
        points = distinct_best(sweep, KEEP, space)
        earlier = EarlierTrials([sweep], space, "min", seed)
    learns = earlier if method == "stage" else None
    number = BUDGET if method == "no stage" else round(BUDGET - COST * STAGE_TRIALS)
    sampler = build_sampler(tpe, seed, space, learns)
    own = OptunaSearcher(space, metric=METRIC, mode="min", num_trials=number, sampler=sampler, points=points)
    values = search(own, lambda point: loss(problem.function, point))
    regret = min(value for value, _ in values) / problem.median
    if earlier is None:
        return Result(regret)
    pairs = [(before, now) for now, point in values for before, other in staged if point == other]
    found = agreement([before for before, _ in pairs], [now for _, now in pairs])
    return Result(regret, found.tau, earlier.trusts(own.study.get_trials(deepcopy=False))[0])


def true_agreement(dimensions: int, proxy: str) -> float:
    """Kendall's rank correlation between stage and search at random points."""
    function, random = Hartmann(dimensions), np.random.default_rng(0)
    rows = [dict(zip(function.space, row, strict=True)) for row in random.random((500, dimensions))]
    both = [(proxy_loss(function, proxy, row), loss(function, row)) for row in rows]
    return float(kendalltau(*zip(*both, strict=True)).statistic)


def cell(results: list[Result]) -> str:
    """Mean regret with half the width of its 95 % confidence interval."""
    regrets = np.array([each.regret for each in results])
    half = t.ppf(0.975, len(regrets) - 1) * regrets.std(ddof=1) / np.sqrt(len(regrets))
    return f"{regrets.mean():.3f} ± {half:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--dimensions", nargs="+", type=int, choices=[3, 6], default=[3, 6])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", type=Path, help="Markdown file whose table is replaced")
    options = parser.parse_args()
    rows = []
    with ProcessPoolExecutor(options.processes) as pool:
        for dimensions, proxy in itertools.product(options.dimensions, PROXIES):
            found = {
                method: [pool.submit(run, dimensions, proxy, method, seed) for seed in range(options.seeds)]
                for method in METHODS
            }
            results = {method: [each.result() for each in futures] for method, futures in found.items()}
            of_stage = results["stage"]
            row = [
                str(dimensions),
                proxy,
                f"{true_agreement(dimensions, proxy):.2f}",
                f"{fmean(each.tau or 0.0 for each in of_stage):.2f}",
                f"{fmean(each.trust or 0.0 for each in of_stage):.2f}",
                *(cell(results[method]) for method in METHODS),
            ]
            print(" | ".join(row), flush=True)
            rows.append(row)
    headers = ["dimensions", "stage's function", "tau", "measured tau", "trust", *METHODS]
    table = markdown_table(headers, rows, left=2)
    print(table)
    if options.write:
        write_between_marks(options.write, {"stages": f"{table}\n\n({options.seeds} seeds)"})


if __name__ == "__main__":
    main()
