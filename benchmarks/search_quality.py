"""Quality of searches at equal budgets, in simulated time: ours, Optuna's and Ray's, on the same problems.

A budget of 40 is the time in which the workers could train 40 configurations to the end. Regret is normalized: 0 is the
optimum, 1 the median point. Prints the mean over seeds with its 95 % confidence interval, and mean ranks:

    python benchmarks/search_quality.py                                  # minutes to hours: all methods on all problems
    python benchmarks/search_quality.py --methods random+asha tpe+asha --problems mfh3 --seeds 4 --budgets 10
"""

from __future__ import annotations

import argparse
import json
import logging
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from search_problems import METRIC, Problem, hartmann_problems

from sweeps.constants import PARAMETERS, STEPS
from sweeps.simulate.simulation import Outcome, Reported, Simulation

ETA, GRACE = 3, 1
FRACTIONS = (0.25, 0.5, 1.0)
"""Parts of the budget at which the regret is taken."""


@dataclass
class Method:
    """A way to search."""

    run: Callable[[Problem, int, int, float], tuple[Outcome, dict[int, Any]]]
    """Searches a problem with a seed and a number of workers for some simulated seconds."""


# --- ours ------------------------------------------------------------------------------------------------------


def ours(sampler: dict[str, Any], scheduler: str) -> Method:
    """A sampler of ours by its config, with a scheduler of ours."""

    def run(problem: Problem, seed: int, workers: int, limit_s: float) -> tuple[Outcome, dict[int, Any]]:
        from pydantic import TypeAdapter
        from ray.tune.schedulers import FIFOScheduler

        from sweeps.config.search import Sampler
        from sweeps.search import OptunaSearcher, build_sampler
        from sweeps.search.schedulers.asha import Asha
        from sweeps.search.schedulers.decisions import DecisionLog
        from sweeps.search.schedulers.hyperband import Hyperband

        config = TypeAdapter[Any](Sampler).validate_python(sampler)
        searcher = OptunaSearcher(
            problem.space, metric=METRIC, mode="min", sampler=build_sampler(config, seed, problem.space)
        )
        decisions = DecisionLog(searcher.study, on_report=searcher.on_trial_result)
        longest = problem.source(0).curve(middle(problem))[-1].step
        made = {
            "asha": lambda: Asha(STEPS, GRACE, ETA, 1, seed, decisions),
            "hyperband": lambda: Hyperband(STEPS, GRACE, longest, ETA, decisions),
            "none": FIFOScheduler,
        }[scheduler]()
        return simulated(searcher, made, problem, seed, workers, limit_s)

    return Method(run)


def middle(problem: Problem) -> dict[str, Any]:
    """Any point of a problem."""
    from sweeps.space.suggester import RandomDraws

    return problem.space.sample(RandomDraws(0), lambda path: None)


def simulated(
    searcher: Any, scheduler: Any, problem: Problem, seed: int, workers: int, limit_s: float
) -> tuple[Outcome, dict[int, Any]]:
    """Search in simulated time."""
    scheduler.set_search_properties(METRIC, "min")
    simulation = Simulation(
        searcher,
        scheduler,
        problem.source(seed),
        workers,
        exhausted=lambda usage: "budget" if usage.wall_s > limit_s else None,
    )
    outcome = simulation.run()
    return outcome, {trial.number: trial.config[PARAMETERS] for trial in simulation.get_trials()}


# --- peers -----------------------------------------------------------------------------------------------------


def ray_optuna(problem: Problem, seed: int, workers: int, limit_s: float) -> tuple[Outcome, dict[int, Any]]:
    """Stock Ray Tune: ``OptunaSearch`` and ``ASHAScheduler``."""
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.optuna import OptunaSearch

    class Numbered(OptunaSearch):
        """Ray's searcher with what ``Simulation`` asks of one."""

        ended_because = None

        def number(self, trial_id: str) -> int:
            return int(trial_id)

    def define(trial: Any) -> None:
        problem.space.sample(trial, lambda path: None)

    searcher = Numbered(define, metric=METRIC, mode="min", seed=seed)
    scheduler = ASHAScheduler(time_attr=STEPS, max_t=10**9, grace_period=GRACE, reduction_factor=ETA)
    return simulated(searcher, scheduler, problem, seed, workers, limit_s)


def optuna_native(pruner: str) -> Method:
    """Optuna alone: TPE as it is by default, with one of its pruners, ``ask`` and ``tell`` from parallel workers."""

    def run(problem: Problem, seed: int, workers: int, limit_s: float) -> tuple[Outcome, dict[int, Any]]:
        import heapq

        import optuna

        source = problem.source(seed)
        longest = source.curve(middle(problem))[-1].step
        made: dict[str, Callable[[], Any]] = {
            "halving": lambda: optuna.pruners.SuccessiveHalvingPruner(GRACE, ETA),
            "hyperband": lambda: optuna.pruners.HyperbandPruner(GRACE, longest, ETA),
        }
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed), pruner=made[pruner]())
        events: list[tuple[float, int, int]] = []
        trials, curves, points, reports = {}, {}, {}, []

        def start(now: float) -> None:
            trial = study.ask()
            points[trial.number] = problem.space.sample(trial, lambda path: None)
            trials[trial.number], curves[trial.number] = trial, source.curve(points[trial.number])
            heapq.heappush(events, (now + curves[trial.number][0].elapsed_s, trial.number, 0))

        for _ in range(workers):
            start(0.0)
        while (event := heapq.heappop(events))[0] <= limit_s:
            now, number, index = event
            trial, curve = trials[number], curves[number]
            report = curve[index]
            value = report.metrics[METRIC]
            reports.append(Reported(now, number, report.step, dict(report.metrics)))
            trial.report(value, report.step)
            if index + 1 == len(curve):
                study.tell(trial, min(each.metrics[METRIC] for each in curve))
            elif trial.should_prune():
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            else:
                heapq.heappush(events, (now + curve[index + 1].elapsed_s - report.elapsed_s, number, index + 1))
                continue
            start(now)
        return Outcome(reports, limit_s, 0.0, {}, None), points

    return Method(run)


METHODS: dict[str, Method] = {
    "random": ours({"kind": "random"}, "none"),
    "random+asha": ours({"kind": "random"}, "asha"),
    "tpe": ours({"kind": "tpe"}, "none"),
    "tpe+asha": ours({"kind": "tpe"}, "asha"),
    "bohb+asha": ours({"kind": "bohb"}, "asha"),
    "predicted+asha": ours({"kind": "predicted"}, "asha"),
    "bohb+hyperband": ours({"kind": "bohb"}, "hyperband"),
    "ray optuna+asha": Method(ray_optuna),
    "optuna tpe+halving": optuna_native("halving"),
    "optuna tpe+hyperband": optuna_native("hyperband"),
}


# --- the benchmark ---------------------------------------------------------------------------------------------


def measure(method: str, problem: str, seed: int, workers: int, budget: int) -> list[float]:
    """Normalized regret after each of ``FRACTIONS`` of the budget; 1 where nothing was reported yet."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    chosen = problems()[problem]
    limit_s = budget * chosen.full_s / workers
    outcome, points = METHODS[method].run(chosen, seed, workers, limit_s)
    regrets = []
    for fraction in FRACTIONS:
        made = [report for report in outcome.reports if report.time_s <= fraction * limit_s]
        regrets.append(chosen.regret(made, points) if made else 1.0)
    return regrets


def problems() -> dict[str, Problem]:
    """All problems by name."""
    return {problem.name: problem for problem in hartmann_problems()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--problems", nargs="+", choices=list(problems()), default=list(problems()))
    parser.add_argument("--budgets", nargs="+", type=int, default=[10, 40, 160])
    parser.add_argument("--workers", nargs="+", type=int, default=[4])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--to", type=Path, help="JSON file for all regrets")
    options = parser.parse_args()
    results: dict[tuple[int, int], dict[tuple[str, str], np.ndarray]] = {}
    with ProcessPoolExecutor(options.processes) as pool:
        for workers in options.workers:
            for budget in options.budgets:
                waiting = {
                    (method, problem): [
                        pool.submit(measure, method, problem, seed, workers, budget) for seed in range(options.seeds)
                    ]
                    for method in options.methods
                    for problem in options.problems
                }
                found = {key: np.array([each.result() for each in futures]) for key, futures in waiting.items()}
                results[workers, budget] = found
                print_results(found, options.methods, options.problems, workers, budget)
                if options.to:
                    options.to.write_text(json.dumps(as_document(results), indent=1))


def as_document(results: dict[tuple[int, int], dict[tuple[str, str], np.ndarray]]) -> list[dict[str, Any]]:
    """All regrets, a row for each method, problem, budget and number of workers."""
    return [
        {
            "workers": workers,
            "budget": budget,
            "method": method,
            "problem": problem,
            "fractions": FRACTIONS,
            "regrets": regrets.tolist(),
        }
        for (workers, budget), found in results.items()
        for (method, problem), regrets in found.items()
    ]


def print_results(
    found: dict[tuple[str, str], np.ndarray], methods: list[str], names: list[str], workers: int, budget: int
) -> None:
    """Print the mean regret at the end with half the width of its confidence interval, and the mean rank."""
    from scipy.stats import rankdata, t

    print(f"\nbudget {budget} full trainings, {workers} workers; normalized regret at the end")
    print(f"{'method':22}" + "".join(f"{name:>20}" for name in names) + f"{'mean rank':>11}")
    # Ranks of the methods within each problem and seed.
    ranks = np.array(
        [rankdata([found[method, name][:, -1] for method in methods], axis=0).mean(axis=1) for name in names]
    ).mean(axis=0)
    for method, rank in zip(methods, ranks, strict=True):
        cells = []
        for name in names:
            last = found[method, name][:, -1]
            error = last.std(ddof=1) / len(last) ** 0.5 * t.ppf(0.975, len(last) - 1) if len(last) > 1 else float("nan")
            cells.append(f"{last.mean():12.4f} +-{error:.3f}")
        print(f"{method:22}" + "".join(f"{cell:>20}" for cell in cells) + f"{rank:11.2f}")


if __name__ == "__main__":
    main()
