"""Wall time and idle workers of one ASHA sweep whose trials keep two workers, and of one whose trials are elastic.

    python benchmarks/elastic_sweep.py --write docs/multi_node.md

takes about fifteen minutes on two idle cores. Both sweeps train the same 16 points on 8 logical workers. A step sleeps
for a time in proportion to a worker's samples, so that the cores of the machine are not the limit: workers beyond the
cores make a step as much shorter as on a machine that has them. What the sweep itself does (processes that start,
checkpoints) takes the time that it takes on this machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from results_document import markdown_table, write_between_marks
from trained.tables import machine

PLACES, TRIALS = 8, 16
NET = """
import time
import torch

class Net(torch.nn.Module):
    def __init__(self, seconds_per_sample):
        super().__init__()
        self.seconds_per_sample = seconds_per_sample
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.Linear(32, 10))

    def forward(self, images):
        if self.training:
            time.sleep(self.seconds_per_sample * len(images))
        return self.layers(images)
"""
SWEEP = (
    *("conf=digits", "space=none", "model=custom", "model._target_=sleeping.Net", "preflight.timeout_s=0"),
    *("train.lr=tag(log, interval(1e-5, 1e-1))", "train.global_batch_size=64", "train.eval_every=30"),
    *("search/sampler=random", "search.default_first=false", f"search.num_trials={TRIALS}", "seed=1"),
    *(f"cluster.num_cpus={PLACES}", "tracking.report=false"),
)
ARMS = {
    "2 workers for each trial": "scaling.num_workers=2",
    "elastic, 2 to 8 workers": "scaling.num_workers={min: 2, max: 8}",
}

Numbers = dict[str, dict[str, float]]


def measure(workers: str, steps: int, step_s: float, folder: Path) -> dict[str, float]:
    """Run the sweep in a folder, and return its numbers.

    Args:
        workers: Override that gives trials their workers.
        steps: Steps of a whole trial.
        step_s: Seconds that a step takes with two workers.
        folder: An empty folder.
    """
    (folder / "sleeping.py").write_text(NET, encoding="utf-8")
    trial = (f"train.max_steps={steps}", f"model.arguments.seconds_per_sample={step_s / 32}")
    command = [sys.executable, "-m", "sweeps", "run", *SWEEP, *trial, workers, "--json"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    document = json.loads(done.stdout)
    spans = [span for trial in document["trials"] for span in spans_of(folder, document["sweep"], trial["trial"])]
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
        "failed": float(document["counts"]["failed"]),
        "pruned": float(document["counts"]["pruned"]),
        "best": float(document["best"]["value"]),
    }


def spans_of(folder: Path, sweep: str, trial: str) -> list[dict[str, Any]]:
    """Times and workers of a trial."""
    command = [sys.executable, "-m", "sweeps", "show", sweep, "--trial", trial, "--json"]
    shown = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    spans: list[dict[str, Any]] = json.loads(shown.stdout)["spans"]
    return spans


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
    click.echo(found)
    if json_file is not None:
        json_file.write_text(json.dumps({"machine": here, "numbers": numbers}, indent=1) + "\n", encoding="utf-8")
    if write is not None:
        write_between_marks(write, {"elastic": found})


if __name__ == "__main__":
    main()
