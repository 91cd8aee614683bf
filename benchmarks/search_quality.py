"""Quality of searches at equal budgets, in simulated time: ours, Optuna's and Ray's, on the same problems.

A budget of 40 is the time in which the workers could train 40 configurations to the end. Regret is normalized: 0 is the
optimum, 1 the median point. Prints the mean over seeds with its 95 % confidence interval, mean ranks, where a method is
significantly better or worse than random+asha (if that is among them), the mean regret after parts of the budget, and
the part of the budget that a method needs for what the best peer reaches with all of it:

    python benchmarks/search_quality.py                                  # minutes to hours: all methods on all problems
    python benchmarks/search_quality.py --methods random+asha tpe+asha --problems mfh3 --seeds 4 --budgets 10
    python benchmarks/search_quality.py --table /tmp/tables/*.parquet  # recorded curves: benchmarks/record_tables.py

Other libraries than Optuna and Ray are in an environment of their own, in which all of this runs:

    make .venv/peers/.ready && .venv/peers/bin/python benchmarks/search_quality.py --methods sweeps smac hebo

A table becomes a surrogate (a forest fitted to its curves), since random search exhausts half of a small table. With
``--pool`` every suggestion becomes the nearest configuration of the table that this search has not used (of
``curves``: the most promising one), with the recorded values:

    python benchmarks/search_quality.py --pool --table tables/taskset_*.parquet --budgets 10 20 40 --workers 1 4 16

With ``--start-cost 0.25`` each trial of a pool takes a quarter of a full training to start, as real ones do if they are
short, and a budget of 10 is the time of 10 trainings with their starts.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import logging
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from curve_files import TUNING
from of_tune import SchedulerOfTune, SearchOfTune
from optuna.samplers import BaseSampler
from pool import Pool, PoolCandidates, PoolSampler, pool_problem
from results_document import write_between_marks
from search_problems import METRIC, Problem, hartmann_problems, table_problem
from searched.methods import INSTALL, PEERS, installed, searched_by
from searched.paired import BASELINE, LEGEND
from searched.regret_figure import draw_regrets
from searched.regrets import (
    FRACTIONS,
    Cell,
    Results,
    as_document,
    progress_table,
    quality_table,
    read_results,
    settings_table,
)

from sweeps.config.search import Stop
from sweeps.constants import STEPS
from sweeps.search.budget import Usage
from sweeps.simulate.simulation import CurveSource, Outcome, Reported, Simulation

ETA = 3


@dataclass
class Method:
    """A way to search."""

    run: Callable[[Problem, int, int, float], tuple[Outcome, dict[int, Any]]]
    """Searches a problem with a seed and a number of workers for some simulated seconds."""
    peer: bool = True
    """Whether others offer it: another library's, or a plain one that all have."""


# --- ours ------------------------------------------------------------------------------------------------------


def ours(sampler: dict[str, Any], scheduler: str, *, peer: bool = False) -> Method:
    """A sampler of ours by its config, with a scheduler of ours."""

    def run(problem: Problem, seed: int, workers: int, limit_s: float) -> tuple[Outcome, dict[int, Any]]:
        from pydantic import TypeAdapter

        from sweeps.config.samplers import Sampler
        from sweeps.search import build_sampler
        from sweeps.search.schedulers.asha import Asha
        from sweeps.search.schedulers.decisions import DecisionLog
        from sweeps.search.schedulers.freeze_thaw import FreezeThaw
        from sweeps.search.schedulers.hyperband import Hyperband
        from sweeps.search.schedulers.scheduler import Scheduler
        from sweeps.search.study_search import StudySearch

        config, source = TypeAdapter[Any](Sampler).validate_python(sampler), problem.source(seed)
        made_sampler = in_pool(build_sampler(config, seed, problem.space), problem, source)
        searcher = StudySearch(problem.space, metric=METRIC, mode="min", sampler=made_sampler)
        known = searcher.objectives, DecisionLog(searcher.study)
        grace, longest = rungs_of(problem)
        used = Usage()

        def freeze_thaw(*, pauses: bool) -> FreezeThaw:
            left = {"remaining_s": lambda: limit_s - used.wall_s}
            return FreezeThaw(STEPS, grace, longest, ETA, problem.space, *known, pauses=pauses, **left)

        made = {
            "asha": lambda: Asha(STEPS, grace, ETA, 1, seed, *known),
            "hyperband": lambda: Hyperband(STEPS, grace, longest, ETA, *known),
            "freeze_thaw": lambda: freeze_thaw(pauses=True),
            "stop": lambda: freeze_thaw(pauses=False),
            "none": lambda: Scheduler(*known),
        }[scheduler]()
        return simulated(searcher, made, source, workers, limit_s, used)

    return Method(run, peer=peer)


def in_pool(sampler: BaseSampler, problem: Problem, source: CurveSource) -> BaseSampler:
    """A sampler of Optuna that suggests configurations of a pool, if the problem has one."""
    from sweeps.search import CurveSampler

    if not isinstance(source, Pool):
        return sampler
    if isinstance(sampler, CurveSampler):
        sampler._candidates = PoolCandidates(source)  # noqa: SLF001 - it ranks them
    return PoolSampler(sampler, problem.space, source)


def middle(problem: Problem) -> dict[str, Any]:
    """Any point of a problem."""
    from sweeps.space.suggester import RandomDraws

    return problem.space.sample(RandomDraws(0), lambda path: None)


def rungs_of(problem: Problem) -> tuple[int, int]:
    """Steps of a trial's first report and of its last one."""
    curve = problem.source(0).curve(middle(problem))
    return curve[0].step, curve[-1].step


def simulated(
    searcher: Any, scheduler: Any, source: CurveSource, workers: int, limit_s: float, used: Usage
) -> tuple[Outcome, dict[int, Any]]:
    """Search in simulated time."""
    stop = Stop(wall_hours=limit_s * (1 + 1e-9) / 3600)  # a report at its end counts
    simulation = Simulation(searcher, scheduler, source, workers, stop, usage=used)
    outcome = simulation.run()
    return outcome, {trial.number: trial.parameters for trial in simulation.trials}


# --- peers -----------------------------------------------------------------------------------------------------


def ray_optuna(problem: Problem, seed: int, workers: int, limit_s: float) -> tuple[Outcome, dict[int, Any]]:
    """Stock Ray Tune: ``OptunaSearch`` and ``ASHAScheduler``."""
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.optuna import OptunaSearch

    from sweeps.config.objectives import Objectives

    def define(trial: Any) -> None:
        points.append(problem.space.sample(trial, lambda path: None))

    import optuna

    points: list[dict[str, Any]] = []
    source = problem.source(seed)
    sampler = in_pool(optuna.samplers.TPESampler(seed=seed), problem, source)  # Ray's own default
    searcher = SearchOfTune(OptunaSearch(define, metric=METRIC, mode="min", sampler=sampler), points)
    grace, _ = rungs_of(problem)
    asha = ASHAScheduler(time_attr=STEPS, max_t=10**9, grace_period=grace, reduction_factor=ETA)
    scheduler = SchedulerOfTune(asha, Objectives((METRIC,), ("min",)))
    return simulated(searcher, scheduler, source, workers, limit_s, Usage())


def optuna_native(pruner: str) -> Method:
    """Optuna alone: TPE as it is by default, with one of its pruners, ``ask`` and ``tell`` from parallel workers."""

    def run(problem: Problem, seed: int, workers: int, limit_s: float) -> tuple[Outcome, dict[int, Any]]:
        import heapq

        import optuna

        source = problem.source(seed)
        grace, longest = rungs_of(problem)
        made: dict[str, Callable[[], Any]] = {
            "halving": lambda: optuna.pruners.SuccessiveHalvingPruner(grace, ETA),
            "hyperband": lambda: optuna.pruners.HyperbandPruner(grace, longest, ETA),
        }
        sampler = in_pool(optuna.samplers.TPESampler(seed=seed), problem, source)
        study = optuna.create_study(sampler=sampler, pruner=made[pruner]())
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
    "random": ours({"kind": "random"}, "none", peer=True),
    "random+asha": ours({"kind": "random"}, "asha", peer=True),
    "tpe": ours({"kind": "tpe"}, "none"),
    "tpe+asha": ours({"kind": "tpe"}, "asha"),
    "bohb+asha": ours({"kind": "bohb"}, "asha"),
    "curves": ours({"kind": "curves"}, "none"),
    "curves+asha": ours({"kind": "curves"}, "asha"),
    "curves+stop": ours({"kind": "curves"}, "stop"),
    "sweeps": ours({"kind": "curves"}, "freeze_thaw"),
    "random+freeze_thaw": ours({"kind": "random"}, "freeze_thaw"),
    "bohb+hyperband": ours({"kind": "bohb"}, "hyperband"),
    "ray optuna+asha": Method(ray_optuna),
    "optuna tpe+halving": optuna_native("halving"),
    "optuna tpe+hyperband": optuna_native("hyperband"),
} | {name: Method(searched_by(name)) for name in PEERS}


# --- the benchmark ---------------------------------------------------------------------------------------------


def measure(method: str, problem: Source, seed: int, workers: int, budget: int) -> list[float]:
    """Normalized regret after each of ``FRACTIONS`` of the budget; 1 where nothing was reported yet."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    chosen = loaded(problem)
    limit_s = budget * chosen.full_s / workers
    outcome, points = METHODS[method].run(chosen, seed, workers, limit_s)
    regrets = []
    for fraction in FRACTIONS:
        made = [report for report in outcome.reports if report.time_s <= fraction * limit_s]
        regrets.append(chosen.regret(made, points) if made else 1.0)
    return regrets


class Source(NamedTuple):
    """A problem by its name, for another process: a function's name, or a table."""

    name: str
    table: Path | None = None
    metric: str = ""
    mode: str = ""
    is_pool: bool = False
    start_cost: float = 0.0
    """Time to start a trial in a pool, as a part of the mean time of a full training."""


@functools.cache
def loaded(source: Source) -> Problem:
    """The problem; a table's surrogate is fitted once in each process."""
    if source.table is None:
        return next(problem for problem in hartmann_problems() if problem.name == source.name)
    if source.is_pool:
        return pool_problem(source.table, source.metric, source.mode, source.start_cost)
    return table_problem(source.table, source.metric, source.mode)


def arguments() -> tuple[argparse.Namespace, list[Source], Results]:
    """The options, the problems, and what was measured before."""
    functions = [problem.name for problem in hartmann_problems()]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = [name for name in METHODS if name not in PEERS or installed(name)]
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=here, help="default: all that are installed")
    parser.add_argument("--problems", nargs="*", choices=functions, help="functions; default: all, without --table")
    parser.add_argument("--table", nargs="+", type=Path, default=[], help="Parquet files of learning curves")
    parser.add_argument("--pool", action="store_true", help="tables are pools of configurations, without a surrogate")
    parser.add_argument("--start-cost", type=float, default=0.0, help="time to start a trial in a pool, in trainings")
    parser.add_argument("--metric", default="eval/loss", help="column of the tables to search for")
    parser.add_argument("--mode", choices=["min", "max"], default="min")
    parser.add_argument("--budgets", nargs="+", type=int, default=[10, 40, 160])
    parser.add_argument("--workers", nargs="+", type=int, default=[4])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--to", type=Path, help="JSON file for all regrets; what it has is not measured again")
    parser.add_argument("--write", type=Path, help="Markdown file whose table is replaced")
    parser.add_argument("--figure", type=Path, help="PNG file for a figure of the last budget and number of workers")
    parser.add_argument("--settings", nargs="*", type=setting, help="WORKERS:BUDGET instead of all combinations")
    options = parser.parse_args()
    if missing := [name for name in options.methods if name not in here]:
        parser.error(f"{', '.join(missing)}: not installed; {INSTALL}")
    chosen = functions if options.problems is None and not options.table else options.problems or []
    sources = [Source(name) for name in chosen]
    start = options.start_cost
    of_tables = options.metric, options.mode, options.pool, start
    sources += [Source(path.stem + (f" +{start:g}" if start else ""), path, *of_tables) for path in options.table]
    try:
        return options, sources, read_results(options.to)
    except ValueError as error:
        parser.error(f"--to: {error}")


def main() -> None:
    options, sources, known = arguments()
    found: Results = {}
    with ProcessPoolExecutor(options.processes) as pool:
        for workers, budget in options.settings or itertools.product(options.workers, options.budgets):
            for source, method in itertools.product(sources, options.methods):
                cell = Cell(workers, budget, method, source.name)
                regrets = known.get(cell, [])[: options.seeds]
                seeds = range(len(regrets), options.seeds)
                futures = [pool.submit(measure, method, source, seed, workers, budget) for seed in seeds]
                found[cell] = known[cell] = regrets + [each.result() for each in futures]
                if options.to:
                    options.to.write_text(json.dumps(as_document(known), indent=1), encoding="utf-8")
            names = [source.name for source in sources]
            print(f"\nbudget {budget} full trainings, {workers} workers; normalized regret at the end")
            print(quality_table(found, options.methods, names, workers, budget))
            print("\nits mean over the problems after parts of the budget")
            peers = peers_of(options.methods)
            print(progress_table(found, options.methods, peers, names, workers, budget), flush=True)
    if BASELINE in options.methods:
        print(f"\n{LEGEND}")
    if options.figure:
        draw_regrets(found, options.methods, names, workers, budget, options.figure)
    if options.write:
        if options.settings:
            write_between_marks(options.write, {"search settings": compared_settings(found, options)})
        else:
            write_between_marks(options.write, {"search quality": written(found, options)})


def written(found: Results, options: argparse.Namespace) -> str:
    """The results for a document: functions and tuning tables, then reporting tables."""
    names = list(dict.fromkeys(cell.problem for cell in found))
    reported = [path.stem for path in options.table if path.stem not in TUNING]
    parts = []
    for workers, budget in itertools.product(options.workers, options.budgets):
        for title, chosen in (
            ("Problems that it was designed with", [name for name in names if name not in reported]),
            ("Problems that it was not designed with", reported),
        ):
            if not chosen:
                continue
            parts += [
                f"{title} (budget of {budget} full trainings, {workers} workers, {options.seeds} seeds), at the end:",
                quality_table(found, options.methods, chosen, workers, budget),
            ]
    return "\n\n".join([*parts, *([LEGEND] if BASELINE in options.methods else [])])


def setting(text: str) -> tuple[int, int]:
    """Number of workers and budget from an option."""
    workers, budget = map(int, text.split(":"))
    return workers, budget


def compared_settings(found: Results, options: argparse.Namespace) -> str:
    """One table of several budgets and numbers of workers, for a document."""
    names = list(dict.fromkeys(cell.problem for cell in found))
    table = settings_table(found, options.methods, names, options.settings)
    return f"Mean over {', '.join(names)} ({options.seeds} seeds), at the end:\n\n{table}"


def peers_of(methods: Sequence[str]) -> list[str]:
    """Those that others offer."""
    return [method for method in methods if METHODS[method].peer]


if __name__ == "__main__":
    main()
