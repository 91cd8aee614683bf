"""Goodput of a sweep whose workers are killed again and again: ours, and stock Ray Train with a checkpoint each epoch.

    python benchmarks/goodput.py --write docs/checkpoint_speed.md

takes about half an hour on two idle cores. Both arms train the same trials, two at a time with two workers each. A step
sleeps for a fixed time, so that cores do not decide. Every ``--kill-every`` seconds a random worker gets SIGKILL. The
goodput is the time of the steps that the trials need, of all workers, divided by the time of the four places from the
first step to the last one.

``--simulate`` measures nothing: it checks the model of ``survived/model.py`` by simulation, and extrapolates to many
nodes.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from results_document import markdown_table, write_between_marks
from survived.model import Training
from survived.workload import BATCH, PLACES, WORKERS_PER_TRIAL, read_traces
from trained.tables import machine

from sweeps_train.checkpoints.save_schedule import optimal_interval

OURS, STOCK = "Sweeps", "Ray Train, a checkpoint each epoch"
ARMS = ("sweeps", "stock")
BENCHMARKS = Path(__file__).parent
NODE_FAILURE_S = 54 * 86_400 * 2_048 / 419
"""Mean seconds between failures of one node of 8 GPUs: 419 unexpected interruptions in 54 days on 16,384 GPUs ("The
Llama 3 Herd of Models", https://arxiv.org/abs/2407.21783, table 5)."""
ALIVE_S = 3.0
"""A worker trains if its last step is at most so old."""


@dataclass(frozen=True)
class Workload:
    """Trainings of both arms, and how often a worker is killed."""

    trials: int
    epochs: int
    epoch_steps: int
    step_s: float
    save_every: int
    """Steps between our checkpoints."""
    kill_every: float
    """Seconds from one kill to the next."""
    spare_processes: str
    """Our setting of that name."""

    @property
    def worker_steps(self) -> int:
        """Steps that the trials need, of all workers."""
        return self.trials * self.epochs * self.epoch_steps * WORKERS_PER_TRIAL


def our_command(each: Workload, traces: Path) -> list[str]:
    """The sweep as a user would start it."""
    return [
        *(sys.executable, "-m", "sweeps", "run", "conf=digits", "space=none", "search=random", "--json"),
        *(f"search.num_trials={each.trials}", f"search.max_concurrent={PLACES}", "search.max_retries=1000"),
        "train.lr=tag(log, interval(1e-4, 1e-3))",  # a space of one point has one trial
        *("search.metric=eval/loss", "search.mode=min", "tracking.report=false", "preflight.timeout_s=0"),
        *(f"cluster.num_cpus={PLACES * WORKERS_PER_TRIAL}", f"scaling.num_workers={WORKERS_PER_TRIAL}"),
        f"scaling.spare_processes={each.spare_processes}",
        *("model=custom", "model._target_=survived.workload.Slow", f"+model.arguments.step_s={each.step_s}"),
        f"+model.arguments.traces={traces}",
        *(
            "data=custom",
            "data._target_=survived.workload.samples",
            f"+data.arguments.number={BATCH * each.epoch_steps}",
        ),
        *("train.epochs=null", f"train.max_steps={each.epochs * each.epoch_steps}", f"train.global_batch_size={BATCH}"),
        *(f"train.eval_every={each.epoch_steps}", f"checkpoint.every={each.save_every}", "train.log_every=10"),
    ]


def stock_command(each: Workload, traces: Path) -> list[str]:
    """The script that starts Ray Train for each trial."""
    sizes = (each.trials, each.epochs, each.epoch_steps, each.step_s, traces, traces.parent / "ray")
    return [sys.executable, "-m", "survived.stock", *map(str, sizes)]


def survive(command: list[str], traces: Path, kill_every: float, folder: Path, seed: int) -> list[float]:
    """Run an arm, and kill one of its workers again and again; returns the times of the kills."""
    draw, kills = random.Random(seed), []
    environment = os.environ | {"PYTHONPATH": f"{BENCHMARKS}:{os.environ.get('PYTHONPATH', '')}"}
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
        next_kill = 0.0
        while process.poll() is None:
            time.sleep(0.2)
            now = time.time()
            training = [each.process for each in read_traces(traces) if now - each.last < ALIVE_S]
            if training and not next_kill:
                next_kill = now + kill_every
            if training and now >= next_kill:
                with contextlib.suppress(ProcessLookupError):  # its trial has just ended
                    os.kill(draw.choice(training), signal.SIGKILL)
                    kills.append(now)
                    next_kill = now + kill_every
    if process.returncode:
        raise click.ClickException((folder / "output.txt").read_text(errors="replace")[-3000:])
    return kills


def measure(arm: Callable[[Workload, Path], list[str]], workload: Workload, folder: Path) -> dict[str, Any]:
    """Goodput of an arm, given the command that starts it, and what it lost."""
    traces = folder / "traces"
    traces.mkdir()
    kills = survive(arm(workload, traces), traces, workload.kill_every, folder, seed=0)
    needed_s = workload.worker_steps * workload.step_s
    found = read_traces(traces)
    wall = max(each.last for each in found) - min(each.first for each in found)
    again = [min((each.first for each in found if each.first > kill), default=kill) - kill for kill in kills]
    return {
        "goodput": needed_s / (wall * PLACES * WORKERS_PER_TRIAL),
        "wall_s": wall,
        "kills": len(kills),
        "steps": sum(each.steps for each in found),
        "recovery_s": statistics.median(again) if again else None,
    }


def measured_table(numbers: dict[str, dict[str, Any]], workload: Workload) -> str:
    """Both arms."""
    rows = [
        [
            name,
            f"{each['goodput']:.1%}",
            f"{each['wall_s']:,.0f} s",
            str(each["kills"]),
            "" if each["recovery_s"] is None else f"{each['recovery_s']:.1f} s",
            f"{each['steps'] / workload.worker_steps - 1:.1%}",
        ]
        for name, each in numbers.items()
    ]
    table = markdown_table(["", "goodput", "wall time", "kills", "trains again after", "steps made twice"], rows)
    epochs = f"{workload.epochs} epochs of {workload.epoch_steps} steps of {workload.step_s:g} s"
    return (
        f"{table}\n\n{workload.trials} trials of {epochs}, two at a time with {WORKERS_PER_TRIAL} workers each; a "
        f"worker is killed every {workload.kill_every:g} s; Sweeps saves every {workload.save_every} steps, with "
        f"scaling.spare_processes={workload.spare_processes}."
    )


def extrapolated_table(save_s: float, restart_s: float, epoch_s: float) -> str:
    """Goodput by the model and by its simulation, for one training on all nodes."""
    rows = []
    for nodes in (1, 10, 100, 1_000, 10_000):
        mean = NODE_FAILURE_S / nodes
        best = Training(optimal_interval(save_s, mean), save_s, restart_s, mean)
        epochs = Training(epoch_s, save_s, restart_s, mean)
        cells = [f"{mean / 3600:,.1f} h", f"{best.interval:,.0f} s"]
        for each in (best, epochs):
            cells += [f"{each.expected_goodput():.2%}", f"{each.simulated_goodput(200_000, seed=nodes):.2%}"]
        rows.append([f"{nodes:,}", *cells])
    headers = ["nodes", "between failures", "interval", "goodput", "simulated", "at each epoch", "simulated"]
    return markdown_table(headers, rows)


@click.command()
@click.option("--trials", default=4, show_default=True)
@click.option("--epochs", default=8, show_default=True)
@click.option("--epoch-steps", default=30, show_default=True, help="Steps of an epoch.")
@click.option("--step-s", default=1.0, show_default=True, help="Seconds of a step.")
@click.option("--save-every", default=2, show_default=True, help="Steps between our checkpoints.")
@click.option("--kill-every", default=60.0, show_default=True, help="Seconds from one kill to the next.")
@click.option("--spare-processes", default="always", show_default=True, help="Our scaling.spare_processes.")
@click.option("--simulate", is_flag=True, help="Only check the model and extrapolate it.")
@click.option("--save-s", default=0.3, show_default=True, help="With --simulate: seconds for which a save blocks.")
@click.option("--restart-s", default=30.0, show_default=True, help="With --simulate: seconds to go on after a failure.")
@click.option("--epoch-s", default=3600.0, show_default=True, help="With --simulate: seconds of an epoch.")
@click.option("--arm", "arms", type=click.Choice(ARMS), multiple=True, default=ARMS, help="Measure only this one.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE.json", help="Add numbers to it.")
@click.option("--write", type=click.Path(path_type=Path, exists=True), metavar="FILE.md", help="Update its numbers.")
def main(
    simulate: bool,
    save_s: float,
    restart_s: float,
    epoch_s: float,
    arms: tuple[str, ...],
    json_file: Path | None,
    write: Path | None,
    **sizes: Any,
) -> None:
    """Measure what is left of the workers' time when workers are killed."""
    workload = Workload(**sizes)
    if simulate:
        contents = {"extrapolated": extrapolated_table(save_s, restart_s, epoch_s)}
        numbers: dict[str, dict[str, Any]] = {}
    else:
        kept = json.loads(json_file.read_text()) if json_file and json_file.exists() else {}
        numbers = kept["numbers"] if kept.get("workload") == asdict(workload) else {}
        chosen = {"sweeps": (OURS, our_command), "stock": (STOCK, stock_command)}
        for name, arm in (chosen[arm] for arm in arms):
            click.echo(f"{name} ...", err=True)
            with tempfile.TemporaryDirectory() as folder:
                numbers[name] = measure(arm, workload, Path(folder))
        contents = {"goodput": measured_table(numbers, workload), "goodput machine": machine(("torch", "ray"))}
    click.echo("\n\n".join(contents.values()))
    if json_file is not None:
        document = {"workload": asdict(workload), "numbers": numbers}
        json_file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if write is not None:
        write_between_marks(write, contents)


if __name__ == "__main__":
    main()
