"""Cost of a search besides training: time per suggestion and memory, by number of trials.

Trials come from the searcher and go through Tune's ASHA, with the study in the journal file that sweeps use; the values
that they report are computed. Draws docs/images/search_scaling.png:

    python benchmarks/search.py                     # all samplers, 10,000 trials each, one after another
    python benchmarks/search.py --trials 1000 --samplers tpe random
    python benchmarks/search.py --trials 3000 --samplers auto      # the default, whose trials pause

``auto`` goes through its own scheduler, in simulated time; the times of what trials report are then means.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SAMPLERS: dict[str, dict[str, Any]] = {
    "auto": {"kind": "curves"},
    "tpe": {"kind": "tpe"},
    "bohb": {"kind": "bohb"},
    "curves": {"kind": "curves"},
    "cmaes": {"kind": "cmaes"},
    "nsga2": {"kind": "nsga2"},
    "qmc": {"kind": "qmc"},
    "random": {"kind": "random"},
    "gp": {"kind": "gp"},
}
FEWER = {"gp": 60}
"""Its time grows with the cube of the number of trials; it is for tens of them, and a few hundred."""
SELDOM = {"tpe": 20, "bohb": 20, "curves": 20, "auto": 20}
"""One in so many points is theirs, the rest are random: what a suggestion costs them depends on how many trials there
are, and not on who suggested those; and to measure each of 10,000 would take long."""
SPACE = {
    "lr": {"type": "float", "low": 1e-5, "high": 1e-1, "log": True},
    "dropout": {"type": "float", "low": 0.0, "high": 0.5},
    "layers": {"type": "int", "low": 1, "high": 12},
    "width": {"type": "int", "low": 16, "high": 1024, "log": True},
    "optimizer": {"type": "categorical", "choices": ["adamw", "sgd"]},
    "momentum": {"type": "float", "low": 0.5, "high": 0.99, "when": {"optimizer": "sgd"}},
}
MEMORY = Path("/dev/shm")
"""Folder of the journal, in memory, so that a slow disk does not matter; times are processor times."""
CONCURRENT = 16
REPORTS = 9


def measure(name: str, trials: int) -> list[tuple[int, float, float, float]]:
    """Search; returns (trials started, seconds to suggest one, seconds to take in all that one reports, MiB) at the end
    of each twentieth of the way, times as medians. Seconds are of the processor, so that other work on the machine does
    not count."""
    import optuna
    import psutil
    from optuna.storages import JournalStorage
    from pydantic import TypeAdapter
    from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler

    from sweeps.config.samplers import RandomSampler, Sampler
    from sweeps.config.space import Distribution
    from sweeps.search import OptunaSearcher
    from sweeps.search.samplers.build_sampler import build_sampler
    from sweeps.search.study_file import StudyFile
    from sweeps.search.study_version import STUDY_FILE
    from sweeps.space.space import Space

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = Space(TypeAdapter(dict[str, Distribution]).validate_python(SPACE))
    sampler = build_sampler(TypeAdapter[Sampler](Sampler).validate_python(SAMPLERS[name]), 0, space)
    others = build_sampler(RandomSampler(kind="random"), 0, space)
    scheduler = AsyncHyperBandScheduler(metric="loss", mode="min", max_t=10**9, grace_period=1, reduction_factor=3)
    rng, every = random.Random(0), max(1, trials // 20)
    rows: list[tuple[int, float, float, float]] = []
    suggesting: list[float] = []
    telling: list[float] = []
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        storage = JournalStorage(StudyFile(Path(folder) / STUDY_FILE))
        searcher = OptunaSearcher(
            space, metric="loss", mode="min", sampler=sampler, storage=storage, study_name="study", num_trials=trials
        )
        running: list[tuple[str, dict[str, Any]]] = []
        for index in range(trials):
            if len(running) == CONCURRENT:
                trial, point = running.pop(rng.randrange(CONCURRENT))
                telling.append(train(trial, point, searcher, scheduler, TrialScheduler.STOP))
            own = index % min(SELDOM.get(name, 1), every) == 0
            searcher.study.sampler = sampler if own else others
            begin = time.process_time()
            point = searcher.suggest(str(index))
            if own:
                suggesting.append(time.process_time() - begin)
            scheduler.on_trial_add(None, SimpleNamespace(trial_id=str(index)))
            running.append((str(index), point))
            if (index + 1) % every == 0:
                memory = psutil.Process().memory_info().rss / 2**20
                rows.append((index + 1, statistics.median(suggesting), statistics.median(telling or [0.0]), memory))
                suggesting.clear()
                telling.clear()
                print(name, rows[-1], file=sys.stderr)
    return rows


def measure_auto(trials: int) -> list[tuple[int, float, float, float]]:
    """Measure ``search=auto``, as ``measure`` does other searches."""
    import optuna
    import psutil
    from optuna.storages import JournalStorage
    from pydantic import TypeAdapter

    from sweeps.config.samplers import RandomSampler, Sampler
    from sweeps.config.space import Distribution
    from sweeps.search.samplers.build_sampler import build_sampler
    from sweeps.search.schedulers.automatic import Automatic
    from sweeps.search.schedulers.decisions import DecisionLog
    from sweeps.search.study_file import StudyFile
    from sweeps.search.study_search import StudySearch, Suggested
    from sweeps.search.study_version import STUDY_FILE
    from sweeps.simulate.recorded_table import Report
    from sweeps.simulate.simulation import Simulation
    from sweeps.space.space import Space

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = Space(TypeAdapter(dict[str, Distribution]).validate_python(SPACE))
    sampler = build_sampler(TypeAdapter[Sampler](Sampler).validate_python(SAMPLERS["auto"]), 0, space)
    others = build_sampler(RandomSampler(kind="random"), 0, space)
    rows: list[tuple[int, float, float, float]] = []
    suggesting: list[float] = []
    deciding: list[float] = []
    every = max(1, trials // 20)

    class Timed(StudySearch):
        count = 0

        def next_trial(self) -> Suggested | None:
            self.count += 1
            own = self.count % min(SELDOM["auto"], every) == 0
            self.study.sampler = sampler if own else others
            begin = time.process_time()
            suggested = super().next_trial()
            if own:
                suggesting.append(time.process_time() - begin)
            if suggested is not None and len(simulation.trials) % every == every - 1:
                memory = psutil.Process().memory_info().rss / 2**20
                started = len(simulation.trials) + 1
                rows.append((started, statistics.mean(suggesting), sum(deciding) / every, memory))
                suggesting.clear()
                deciding.clear()
                print("auto", rows[-1], file=sys.stderr)
            return suggested

    class TimedScheduler(Automatic):
        def report(self, *given: Any) -> Any:
            begin = time.process_time()
            verdict = super().report(*given)
            deciding.append(time.process_time() - begin)
            return verdict

    class Curves:
        def curve(self, point: Any) -> list[Report]:
            return [Report(step, float(step), {"loss": loss(point, step)}) for step in range(1, REPORTS + 1)]

    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        storage = JournalStorage(StudyFile(Path(folder) / STUDY_FILE))
        searcher = Timed(space, metric="loss", mode="min", storage=storage, study_name="study", num_trials=trials)
        decisions = DecisionLog(searcher.study)
        scheduler = TimedScheduler("evaluations", 1, REPORTS, 3, space, searcher.objectives, decisions)
        simulation = Simulation(searcher, scheduler, Curves(), CONCURRENT)
        simulation.run()
    return rows


def train(trial: str, point: dict[str, Any], searcher: Any, scheduler: Any, stop: str) -> float:
    """Report as training would, until its end or until the scheduler stops it; returns the seconds that took."""
    begin = time.process_time()
    handle = SimpleNamespace(trial_id=trial)
    for step in range(1, REPORTS + 1):
        done = step == REPORTS
        result = {"loss": loss(point, step), "training_iteration": step, "step": step, "sweeps_completed": done}
        if done or scheduler.on_trial_result(None, handle, result) == stop:
            scheduler.on_trial_complete(None, handle, result)
            searcher.on_trial_complete(trial, result)
            break
        searcher.on_trial_result(trial, result)
    return time.process_time() - begin


def loss(point: dict[str, Any], step: int) -> float:
    best = abs(math.log10(point["lr"]) + 3) + point["dropout"] + abs(point["layers"] - 6) / 6
    return best + 1 / step + (0.0 if point["optimizer"] == "adamw" else abs(point["momentum"] - 0.9))


def draw(rows: dict[str, list[list[float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 4), constrained_layout=True)
    titles = ("milliseconds to suggest a trial", f"milliseconds to take in a trial's reports (up to {REPORTS})", "MiB")
    for name, measured in rows.items():
        started = [row[0] for row in measured]
        for column, scale in ((1, 1e3), (2, 1e3), (3, 1)):
            axes[column - 1].plot(started, [row[column] * scale for row in measured], label=name, marker=".", ms=4)
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=title, xlabel="trials")
        axis.grid(alpha=0.3)
    axes[0].set_yscale("log")
    for axis in axes[1:]:
        axis.set_ylim(bottom=0)
    axes[2].legend(loc="lower right", ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument("--to", type=Path, default=Path("docs/images/search_scaling.png"))
    parser.add_argument("--one", choices=SAMPLERS, help=argparse.SUPPRESS)  # each in a process of its own, for memory
    options = parser.parse_args()
    if options.one:
        trials = min(options.trials, FEWER.get(options.one, options.trials))
        print(json.dumps(measure_auto(trials) if options.one == "auto" else measure(options.one, trials)))
        return
    rows = {}
    for name in options.samplers:
        command = [sys.executable, __file__, "--one", name, "--trials", str(options.trials)]
        rows[name] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    draw(rows, options.to)
    print(f"{'sampler':10} {'trials':>7} {'suggest ms':>11} {'reports ms':>11} {'MiB':>6}")
    for name, measured in rows.items():
        for started, suggest, tell, memory in measured[len(measured) // 10 :: len(measured) // 2] + measured[-1:]:
            print(f"{name:10} {started:7,} {suggest * 1e3:11.1f} {tell * 1e3:11.1f} {memory:6.0f}")


if __name__ == "__main__":
    main()
