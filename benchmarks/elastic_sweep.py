"""Wall time and idle workers of one ASHA sweep whose trials keep two workers, and of one whose trials are elastic.

    python benchmarks/elastic_sweep.py --write docs/performance.md

takes about fifteen minutes on two idle cores. Both sweeps train the same 16 points on 8 logical workers. A step sleeps
for a time in proportion to a worker's samples, so that the cores of the machine are not the limit: workers beyond the
cores make a step as much shorter as on a machine that has them. What the sweep itself does (processes that start,
checkpoints) takes the time that it takes on this machine. For each trial that grew, the time is measured from the end
of the trial that had the workers before, and from the decision, until the grown trial begins its first step.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from results_document import markdown_table, write_between_marks
from trained.tables import machine

PLACES, TRIALS = 8, 16
NET = """
import os
import time
from pathlib import Path

import torch

FIRST_STEPS = Path("first_steps")

class Net(torch.nn.Module):
    def __init__(self, seconds_per_sample):
        super().__init__()
        self.seconds_per_sample, self.has_begun = seconds_per_sample, False
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.Linear(32, 10))

    def forward(self, images):
        if self.training:
            if not self.has_begun:
                self.has_begun = True
                FIRST_STEPS.mkdir(exist_ok=True)
                (FIRST_STEPS / f"{time.time()}-{os.getpid()}").touch()
            time.sleep(self.seconds_per_sample * len(images))
        return self.layers(images)
"""
SWEEP = (
    *("conf=digits", "space=none", "model=custom", "model._target_=sleeping.Net", "preflight.timeout_s=0"),
    *("train.lr=tag(log, interval(1e-5, 1e-1))", "train.global_batch_size=64", "train.eval_every=30"),
    *("search/sampler=random", "search.default_first=false", f"search.num_trials={TRIALS}", "seed=1"),
    *(f"cluster.num_cpus={PLACES}", "tracking.report=false"),
)
ELASTIC = "elastic, 2 to 8 workers"
ARMS = {"2 workers for each trial": "scaling.num_workers=2", ELASTIC: "scaling.num_workers={min: 2, max: 8}"}

Numbers = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Growth:
    """Unix times of a trial that got more workers."""

    freed: float
    """End of the trial that had them before."""
    decided: float
    """The trial was asked to change."""
    trains: float
    """It begins its first step with them."""


def measure(workers: str, steps: int, step_s: float, folder: Path) -> dict[str, float]:
    """Run the sweep in an empty folder, and return its numbers. ``workers`` is the override that gives trials their
    workers; a step takes ``step_s`` with two of them."""
    (folder / "sleeping.py").write_text(NET, encoding="utf-8")
    trial = (f"train.max_steps={steps}", f"model.arguments.seconds_per_sample={step_s / 32}")
    command = [sys.executable, "-m", "sweeps", "run", *SWEEP, *trial, workers, "--json"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    document = json.loads(done.stdout)
    shown = [show(folder, document["sweep"], trial["trial"]) for trial in document["trials"]]
    spans = [span for trial in shown for span in trial["spans"]]
    grown = growths(shown, [float(file.name.partition("-")[0]) for file in (folder / "first_steps").iterdir()])
    began, ended = min(each["held"] for each in spans), max(each["ended"] for each in spans)
    held = sum(len(each["workers"]) * (each["ended"] - each["held"]) for each in spans)
    account = document["time"]["account"]
    return {
        "wall_s": ended - began,
        "idle_worker_s": PLACES * (ended - began) - held,
        "idle_share": 1 - held / (PLACES * (ended - began)),
        "start_share": account["start"] / sum(account.values()),
        "goodput": document["time"]["goodput"],
        "resizes": float(len(spans) - len(document["trials"])),
        "grown_after_s": statistics.median(each.trains - each.freed for each in grown) if grown else math.nan,
        "resized_in_s": statistics.median(each.trains - each.decided for each in grown) if grown else math.nan,
        "failed": float(document["counts"]["failed"]),
        "pruned": float(document["counts"]["pruned"]),
        "best": float(document["best"]["value"]),
    }


def show(folder: Path, sweep: str, trial: str) -> dict[str, Any]:
    """Document of ``show`` for a trial."""
    command = [sys.executable, "-m", "sweeps", "show", sweep, "--trial", trial, "--json"]
    shown = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    document: dict[str, Any] = json.loads(shown.stdout)
    return document


def growths(trials: Sequence[dict[str, Any]], first_steps: Sequence[float]) -> list[Growth]:
    """Find the growths of all trials that got workers of an ended trial, given the Unix times at which processes began
    their first steps."""
    found = []
    for trial in trials:
        others = [span["ended"] for each in trials if each is not trial for span in each["spans"]]
        for before, after in itertools.pairwise(trial["spans"]):
            asked = [note["at"] for note in trial["notes"] if "it changes from" in note["text"]]
            decided = max((at for at in asked if at <= after["trained"]), default=None)
            if decided is None or len(after["workers"]) <= len(before["workers"]):
                continue
            freed = max((ended for ended in others if ended <= decided), default=None)
            trains = min((moment for moment in first_steps if moment >= after["trained"]), default=None)
            if freed is not None and trains is not None:
                found.append(Growth(freed, decided, trains))
    return found


def table(numbers: Numbers) -> str:
    """Table of all arms."""
    headers = ["trials", "wall time", "idle worker-seconds", "idle", "starting", "training", "resizes", "best accuracy"]
    rows = [
        [
            name,
            f"{each['wall_s']:.0f} s",
            f"{each['idle_worker_s']:,.0f} s",
            f"{each['idle_share']:.1%}",
            f"{each['start_share']:.1%}",
            f"{each['goodput']:.1%}",
            f"{each['resizes']:.0f}",
            f"{each['best']:.4f}",
        ]
        for name, each in numbers.items()
    ]
    return markdown_table(headers, rows)


@click.command()
@click.option("--steps", default=270, show_default=True, help="Steps of a whole trial.")
@click.option("--step-s", default=0.6, show_default=True, help="Seconds of a step with two workers.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE.json", help="Write all numbers.")
@click.option("--write", type=click.Path(path_type=Path, exists=True), metavar="FILE.md", help="Update its numbers.")
def main(steps: int, step_s: float, json_file: Path | None, write: Path | None) -> None:
    """Compare a sweep with fixed and with elastic trials."""
    here = machine(("torch", "ray"))
    numbers: Numbers = {}
    for name, workers in ARMS.items():
        click.echo(f"{name} ...", err=True)
        with tempfile.TemporaryDirectory() as folder:
            numbers[name] = measure(workers, steps, step_s, Path(folder))
        click.echo(f"{numbers[name]}", err=True)
    found = f"{table(numbers)}\n\n{TRIALS} trials of {steps} steps; {step_s:g} s a step with two workers; {here}"
    if numbers[ELASTIC]["resizes"]:
        asked, freed = (f"{numbers[ELASTIC][name]:.1f} s" for name in ("resized_in_s", "grown_after_s"))
        found += (
            f"\n\nA trial that grows begins its first step {asked} after it was asked to change, and {freed} after "
        )
        found += "the trial had ended whose workers it got (medians)."
    click.echo(found)
    if json_file is not None:
        json_file.write_text(json.dumps({"machine": here, "numbers": numbers}, indent=1) + "\n", encoding="utf-8")
    if write is not None:
        write_between_marks(write, {"elastic": found})


if __name__ == "__main__":
    main()
