"""Calibration of forecasts: how often their intervals held the truth, in simulated searches.

Searches of problems with known curves are simulated with many seeds. After a quarter, half and three quarters of their
trials, the forecast that a sweep would show then is compared with how the search went on. Nothing is trained:

    python benchmarks/forecast.py                          # minutes on one core: all problems
    python benchmarks/forecast.py --write benchmarks/measurements.md   # and replaces the table there
    python benchmarks/forecast.py --tuning                 # problems that the method was made with, with its factors
"""

from __future__ import annotations

import argparse
import functools
import itertools
import logging
import math
import statistics
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from results_document import markdown_table, write_between_marks
from search_problems import METRIC, hartmann_problems

from sweeps.simulate.recorded_table import Report
from sweeps.simulate.simulation import CurveSource, Outcome, Reported, Simulation
from sweeps.space.space import Point, Space
from sweeps.tracking.forecast_record import LEVEL, Interval

FRACTIONS = (0.25, 0.5, 0.75)
"""Parts of the trials that have ended when the forecast is made."""
ETA = 3
TUNING = ("mfh3", "mfh3 bad", "mfh3 misleading", "mfh3 slow corner", "valley 4")
"""Problems that the method was chosen and calibrated with; results are reported on the others."""


# --- problems --------------------------------------------------------------------------------------------------


class Problem(NamedTuple):
    """A space with curves."""

    name: str
    space: Space
    source: Any
    """Curves by seed."""


@dataclass
class SlowCorner:
    """Curves of another problem whose seconds depend on its first parameter: up to eight times as long."""

    curves: CurveSource

    def curve(self, point: Point) -> list[Report]:
        speed = 8.0 ** float(point["x0"])
        return [Report(each.step, each.elapsed_s * speed, each.metrics) for each in self.curves.curve(point)]


@dataclass
class Valley:
    """Power-law learning curves whose end is a quadratic function of some parameters, with the noise of a seed; steps
    take longer for large models, and no two equally long."""

    dimensions: int
    space: Space
    random: np.random.Generator
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = [f"x{index}" for index in range(self.dimensions)]

    def curve(self, point: Point) -> list[Report]:
        x = np.array([float(point[name]) for name in self.names])
        best = np.linspace(0.25, 0.7, self.dimensions)
        end = 0.2 + float(((x - best) ** 2).sum()) + (0.15 if point["optimizer"] == "sgd" else 0.0)
        if "momentum" in point:
            end += (float(point["momentum"]) - 0.9) ** 2
        end += self.random.normal() * 0.01
        step_s = 4.0 ** float(x[-1]) * math.exp(self.random.normal() * 0.1)
        reports = []
        for step in (1, 2, 4, 8, 16, 32, 64):
            value = end + (0.5 + float(x[0])) * step**-0.7 + self.random.normal() * 0.01
            reports.append(Report(step, 3.0 + step * step_s, {METRIC: value}))
        return reports


def valley_space(dimensions: int) -> Space:
    """Space of a ``Valley``, with a parameter under a condition."""
    from pydantic import TypeAdapter

    from sweeps.config.space import Distribution

    space: dict[str, Any] = {f"x{index}": {"type": "float", "low": 0.0, "high": 1.0} for index in range(dimensions)}
    space["optimizer"] = {"type": "categorical", "choices": ["adamw", "sgd"]}
    space["momentum"] = {"type": "float", "low": 0.5, "high": 0.99, "when": {"optimizer": "sgd"}}
    return Space(TypeAdapter(dict[str, Distribution]).validate_python(space))


@functools.cache
def problems() -> dict[str, Problem]:
    """All problems by name."""
    found = [Problem(each.name, each.space, each.source) for each in hartmann_problems()]
    slow = [
        Problem(f"{each.name} slow corner", each.space, lambda seed, of=each: SlowCorner(of.source(seed)))
        for each in found
        if each.name in ("mfh3", "mfh6")
    ]
    valleys = []
    for dimensions in (4, 8):
        space = valley_space(dimensions)
        valleys.append(
            Problem(
                f"valley {dimensions}",
                space,
                lambda seed, d=dimensions, s=space: Valley(d, s, np.random.default_rng(seed)),
            )
        )
    return {each.name: each for each in [*found, *slow, *valleys]}


# --- one search ------------------------------------------------------------------------------------------------


class Search(NamedTuple):
    """A search to simulate."""

    problem: str
    sampler: str
    scheduler: str
    trials: int
    workers: int
    seed: int


@dataclass(frozen=True)
class Forecasted:
    """A forecast and what came true."""

    search: Search
    fraction: float
    wall_s: Interval | None
    true_wall_s: float
    hours: Interval | None
    """Worker hours."""
    true_hours: float


def simulate(search: Search) -> list[Forecasted]:
    """Simulate a search, and forecast it after each of ``FRACTIONS``."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    outcome, lengths = run(search)
    ends = sorted(end for _, end in outcome.seconds.values())
    return [
        forecasted(search, outcome, lengths, fraction, ends[max(1, round(fraction * search.trials)) - 1])
        for fraction in FRACTIONS
    ]


def run(search: Search) -> tuple[Outcome, dict[int, int]]:
    """The course of a search, and the last step of each of its trials if nothing stops it."""
    from pydantic import TypeAdapter

    from sweeps.config.samplers import Sampler
    from sweeps.constants import STEPS
    from sweeps.search import build_sampler
    from sweeps.search.schedulers.asha import Asha
    from sweeps.search.schedulers.decisions import DecisionLog
    from sweeps.search.schedulers.scheduler import Scheduler
    from sweeps.search.study_search import StudySearch

    problem = problems()[search.problem]
    config = TypeAdapter[Any](Sampler).validate_python({"kind": search.sampler})
    sampler = build_sampler(config, search.seed, problem.space)
    searcher = StudySearch(problem.space, metric=METRIC, mode="min", sampler=sampler, num_trials=search.trials)
    known = searcher.objectives, DecisionLog(searcher.study)
    scheduler: Any = {
        "asha": lambda: Asha(STEPS, 1, ETA, 1, search.seed, *known),
        "none": lambda: Scheduler(*known),
    }[search.scheduler]()
    simulation = Simulation(searcher, scheduler, problem.source(search.seed), search.workers)
    outcome = simulation.run()
    return outcome, {trial.number: trial.curve[-1].step for trial in simulation.trials}


def forecasted(search: Search, outcome: Outcome, lengths: dict[int, int], fraction: float, now: float) -> Forecasted:
    """The forecast of a search at a moment, and what came true."""
    from sweeps.search.forecast.remaining_work import Course, SearchSoFar
    from sweeps.search.forecast.search_forecast import forecast

    by_trial: dict[int, list[Reported]] = {}
    for report in outcome.reports:
        by_trial.setdefault(report.trial, []).append(report)
    trials, held_s = [], 0.0
    for number, (began, end) in sorted(outcome.seconds.items(), key=lambda item: item[1]):
        held_s += max(0.0, end - max(began, now))
        if began > now:
            continue
        made = [report for report in by_trial.get(number, []) if report.time_s <= now]
        progress = made[-1].step / lengths[number] if made else 0.0
        trials.append(
            Course(
                progress=progress,
                held_s=made[-1].time_s - began if made else 0.0,
                first=(made[0].step / lengths[number], made[0].time_s - began) if made else None,
                state="ended" if end <= now else "running",
            )
        )
    found = forecast(
        SearchSoFar(trials=trials, to_start=search.trials - len(trials), places=search.workers),
        seed=search.seed,
    )
    return Forecasted(
        search,
        fraction,
        found.wall_s,
        outcome.wall_s - now,
        found.worker_hours,
        held_s / 3600,
    )


# --- calibration -----------------------------------------------------------------------------------------------

METHODS = (("tpe", "asha", 4), ("tpe", "asha", 16), ("random", "asha", 4), ("tpe", "none", 4))
"""Sampler, scheduler and workers of the searches; the first is the default of sweeps."""
TRIALS = (20, 40, 80)
"""Numbers of trials, in turn by seed."""


def holds(interval: Interval | None, truth: float) -> bool:
    """Whether a forecast held the truth."""
    return interval is not None and interval.low - 1e-9 <= truth <= interval.high + 1e-9


def share(values: Sequence[bool]) -> str:
    """A share in percent."""
    return f"{100 * sum(values) / len(values):.0f} %" if values else ""


def row(name: str, found: Sequence[Forecasted]) -> list[str]:
    """How often the intervals of some forecasts held the truth, and how wide they were."""
    timed = [each for each in found if each.wall_s is not None]
    widths = [each.wall_s.high / each.wall_s.low for each in timed if each.wall_s is not None and each.wall_s.low > 0]
    return [
        name,
        str(len(found)),
        share([holds(each.wall_s, each.true_wall_s) for each in timed]),
        share([holds(each.hours, each.true_hours) for each in timed]),
        f"{statistics.median(widths):.1f}" if widths else "",
    ]


def calibration_table(found: Sequence[Forecasted]) -> str:
    """The calibration: of all forecasts, and by fraction, problem and kind of search."""
    headers = [
        "forecasts",
        "number",
        "time held",
        "worker-hours held",
        "time: high/low",
    ]
    rows = [row("**all**", found)]
    groups: list[dict[str, list[Forecasted]]] = [{}, {}, {}]
    for each in found:
        search = each.search
        names = (
            f"at {each.fraction:.0%} of the trials",
            search.problem,
            f"{search.sampler} + {search.scheduler}, {search.workers} workers",
        )
        for group, name in zip(groups, names, strict=True):
            group.setdefault(name, []).append(each)
    rows += [row(name, each) for group in groups for name, each in group.items()]
    return markdown_table(headers, rows)


def factors(found: Sequence[Forecasted]) -> str:
    """Factor by which the intervals would have to be longer to hold four fifths of the truths."""
    scores = []
    for each in found:
        for interval, truth in ((each.wall_s, each.true_wall_s), (each.hours, each.true_hours)):
            if interval is not None and interval.low > 0:
                off = math.log(max(truth, 1e-9) / interval.middle)
                reach = interval.high / interval.middle if off > 0 else interval.middle / interval.low
                scores.append(abs(off) / math.log(reach))
    return f"intervals of time and work times {float(np.quantile(scores, LEVEL)):.2f} would hold {LEVEL:.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuning", action="store_true", help="use the problems that the method was made with")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--write", type=Path, help="Markdown file whose table is replaced")
    options = parser.parse_args()
    names = [name for name in problems() if (name in TUNING) is options.tuning]
    first = 1000 if options.tuning else 0
    searches = [
        Search(name, *method[:2], TRIALS[seed % len(TRIALS)], method[2], first + seed)
        for seed, name, method in itertools.product(range(options.seeds), names, METHODS)
    ]
    with ProcessPoolExecutor(options.processes) as pool:
        found = [each for these in pool.map(simulate, searches) for each in these]
    table = calibration_table(found)
    print(table)
    if options.tuning:
        print(factors(found))
    if options.write:
        write_between_marks(options.write, {"forecasts": f"{table}\n\n({options.seeds} seeds)"})


if __name__ == "__main__":
    main()
