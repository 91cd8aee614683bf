"""Trainings that share one group and one frozen base, beside one after another: steps a second and memory, on CPUs.

    python benchmarks/lanes.py --workers 1,2 --rows 1,2,8,16 --lanes 1,2,4,8,16

trains the model and the data of `conf=llm_lora` with `sweeps_train` alone, without Ray: as many trainings at a time as
there are lanes, against `sweeps_train.train` with one. Starts, evaluations and checkpoints are left out. Each arm has
processes of its own; arms take turns, and the median counts. `benchmarks/gpu/lanes.py` measures a GPU.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
from results_document import markdown_table

ALONE = 0
"""Number of lanes that stands for one training after another, without lanes."""
WARM_BLOCKS = 2
"""Blocks of steps that are not measured."""
CONFIG: dict[str, Any] = {
    "task": {"kind": "causal_lm"},
    "model": {"kind": "causal_lm", "path": "builtin:tiny_llama", "dtype": "float32"},
    "data": {
        "kind": "text",
        "path": "builtin:stdlib_docstrings",
        "sequence_length": 128,
        "packing": True,
        "max_eval_documents": 32,
    },
    "train": {"optimizer": "adamw", "warmup_fraction": 0.05, "max_steps": 1_000_000, "eval_every": 1_000_000},
    "strategy": {"kind": "ddp"},
    "checkpoint": {},
}
"""That of `conf=llm_lora`."""
LORA = {"r": 8, "alpha": 16, "target_modules": "attention"}


@dataclass
class Clock:
    """Ends all trainings when enough blocks of steps are measured."""

    blocks: int
    times: list[float] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return len(self.times) > self.blocks + WARM_BLOCKS

    def seconds(self, block: int) -> list[float]:
        """Seconds of a step, the mean of each measured block."""
        measured = self.times[WARM_BLOCKS:]
        return [(end - begin) / block for begin, end in pairwise(measured)]


class ClockReporter:
    """The reporter of one training; that of the first one reads the clock at each log."""

    waits_for_decision = False

    def __init__(self, clock: Clock, *, reads: bool):
        self._clock, self._reads = clock, reads
        self.last: dict[str, float] = {}

    def log(self, progress: Any, metrics: dict[str, float]) -> None:
        self.last = metrics
        if self._reads:
            self._clock.times.append(time.perf_counter())

    def report(self, progress: Any, metrics: dict[str, float], checkpoint: str | None, done: bool) -> None:
        pass

    def checkpoint(self, progress: Any, metrics: dict[str, float], checkpoint: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def should_stop(self, *, can_save: bool = True) -> Any:
        from sweeps_train.reports.reporter import Stop

        return Stop.DISCARD if self._clock.is_over else Stop.NO


class Trainings:
    """A feed of trainings that all begin at once."""

    measures = False

    def __init__(self, requests: Sequence[Any]):
        self._waiting = list(requests)

    def has_next(self) -> bool:
        return False

    def next(self, free: int) -> list[Any]:
        given, self._waiting = self._waiting[:free], []
        return given

    def trains_alone(self, reason: str) -> bool:
        return False

    def stepped(self, lanes: int, tokens: int, seconds: float) -> None:
        pass

    def ended(self, request: Any, error: Exception | None) -> None:
        if error is not None:
            raise error


def trial(config: dict[str, Any], number: int, rows: int, block: int) -> Any:
    """The config of one training; each has another learning rate and seed."""
    from sweeps_train import TRAINING_CONFIG

    train = {**config["train"], "global_batch_size": rows, "lr": 1e-3 * (1 + number / 8), "log_every": block}
    return TRAINING_CONFIG.validate_python({**config, "train": train, "seed": number})


def train_at_once(config: dict[str, Any], lanes: int, rows: int, block: int, blocks: int) -> dict[str, Any]:
    """Train in this group of workers, and return the seconds of a step of all lanes, and a loss."""
    from sweeps_train.lanes.train_lanes import train_lanes
    from sweeps_train.loop import train
    from sweeps_train.training_request import TrainingRequest

    clock = Clock(blocks)
    reporters = [ClockReporter(clock, reads=number == 0) for number in range(max(1, lanes))]
    configs = [trial(config, number, rows, block) for number in range(max(1, lanes))]
    if lanes == ALONE:
        train(configs[0], reporter=reporters[0], checkpoint_folder=None)
    else:
        pairs = zip(configs, reporters, strict=True)
        train_lanes(Trainings([TrainingRequest(config=each, reporter=reporter) for each, reporter in pairs]), lanes)
    return {"seconds": clock.seconds(block), "loss": reporters[0].last.get("train/loss")}


def _worker(arm: tuple[int, int, int], block: int, blocks: int, folder: str, rank: int, results: Any) -> None:
    workers, rows, lanes = arm
    cores = len(os.sched_getaffinity(0))
    os.environ["OMP_NUM_THREADS"] = str(max(1, cores // workers))
    import torch.distributed as dist

    if workers > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=workers)
    config = {**CONFIG, "model": {**CONFIG["model"], "lora": LORA}}
    found = train_at_once(config, lanes, rows, block, blocks)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if rank == 0:
        results.put({**found, "peak_mib": peak})
    if workers > 1:
        dist.destroy_process_group()


def measure(arm: tuple[int, int, int], block: int, blocks: int) -> dict[str, Any]:
    """Train one arm (workers, rows, lanes) in processes of its own."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=_worker, args=(arm, block, blocks, folder, rank, results)) for rank in range(arm[0])
        ]
        for each in processes:
            each.start()
        found: dict[str, Any] = results.get(timeout=600)
        for each in processes:
            each.join()
    return found


def table(found: dict[tuple[int, int, int], list[dict[str, Any]]]) -> str:
    """Rows by workers, sequences of a step and lanes."""
    rows = []
    seconds = {arm: statistics.median(each for run in runs for each in run["seconds"]) for arm, runs in found.items()}
    for arm, step_s in seconds.items():
        workers, sequences, lanes = arm
        speed = max(1, lanes) / step_s
        alone = 1 / seconds[workers, sequences, ALONE]
        peak = max(run["peak_mib"] for run in found[arm])
        name = "one after another" if lanes == ALONE else str(lanes)
        cells = [f"{1000 * step_s:.1f} ms", f"{speed:.1f}", f"{speed / alone:.2f}", f"{peak:,.0f} MiB"]
        rows.append([str(workers), str(sequences), name, *cells])
    headers = ["workers", "sequences of a step", "lanes", "step", "trials' steps a second", "gain", "peak of a worker"]
    return markdown_table(headers, rows)


@click.command()
@click.option("--workers", default="1,2", show_default=True)
@click.option("--rows", default="1,2,8,16", show_default=True, help="Sequences of a training's step.")
@click.option("--lanes", default="1,2,4,8,16", show_default=True)
@click.option("--block", default=20, show_default=True, help="Steps between two readings of the clock.")
@click.option("--blocks", default=5, show_default=True, help="Measured blocks of an arm.")
@click.option("--rounds", default=2, show_default=True, help="Turns of all arms.")
@click.option("--tiny", is_flag=True, help="Few steps of few arms, to see that it runs.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Where the numbers are written.")
def main(
    workers: str, rows: str, lanes: str, block: int, blocks: int, rounds: int, tiny: bool, file: Path | None
) -> None:
    """Measure lanes on CPUs."""
    if tiny:
        workers, rows, lanes, block, blocks, rounds = "1", "1", "2", 2, 2, 1
    numbers = [[int(each) for each in text.split(",")] for text in (workers, rows, lanes)]
    arms = [
        (each, sequences, number)
        for each in numbers[0]
        for sequences in numbers[1]
        for number in (ALONE, *numbers[2])
        if sequences % each == 0
    ]
    found: dict[tuple[int, int, int], list[dict[str, Any]]] = {arm: [] for arm in arms}
    for _ in range(rounds):
        for arm in arms:
            found[arm].append(measure(arm, block, blocks))
    click.echo(table(found))
    if file is not None:
        named = {" ".join(map(str, arm)): runs for arm, runs in found.items()}
        file.write_text(json.dumps({"numbers": named}), encoding="utf-8")


if __name__ == "__main__":
    main()
