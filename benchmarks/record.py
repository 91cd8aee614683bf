"""Duration of `list`, `show` and `report` on a large sweep: 2,000 simulated trials in a real SQLite store of MLflow.

The record is written by our own recorder, as a sweep writes it; only the training is simulated: values follow from the
parameters, and times from a simulated clock.

    python benchmarks/record.py                        # 2,000 trials, in a folder that is removed
    python benchmarks/record.py --trials 24 --keep /tmp/record --objectives 2
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

SWEEP = "simulated"
SPACE: dict[str, dict[str, Any]] = {
    "train.lr": {"type": "float", "low": 1e-5, "high": 1e-1, "log": True},
    "train.global_batch_size": {"type": "categorical", "choices": [16, 32, 64, 128]},
    "train.optimizer": {"type": "categorical", "choices": ["adamw", "sgd"]},
    "train.momentum": {"type": "float", "low": 0.8, "high": 0.99, "when": {"train.optimizer": "sgd"}},
    "model.encoder.attention.dropout_probability": {"type": "float", "low": 0.0, "high": 0.5},
    "model.lora.r": {"type": "int", "low": 4, "high": 64, "log": True},
    "model.lora.target_modules": {"type": "categorical", "choices": [["q_proj"], ["q_proj", "v_proj"], ["all-linear"]]},
    "train.warmup_fraction": {"type": "float", "low": 0.0, "high": 0.3},
}
REPORTS = 20
STEPS = 2000
PLACES = 8
"""Trials at a time, each of two workers with a GPU."""


def simulate(
    folder: Path, trials: int, objectives: int, seed: int = 0, *, sweep: str = SWEEP, conf: str = "llm_lora"
) -> None:
    """Write the record of a sweep with one or two objectives into the store of a folder."""
    from sweeps.config.objectives import Objectives
    from sweeps.tracking.recorder import Recorder
    from sweeps.tracking.sweep_run import SweepInfo

    metrics, modes = (("eval/loss",), ("min",)) if objectives == 1 else (("eval/loss", "speed"), ("min", "max"))
    goals = Objectives(metrics, modes)  # type: ignore[arg-type]
    own = folder / "outputs" / sweep
    own.mkdir(parents=True)
    uri = f"sqlite:///{folder}/mlflow.db"
    config = yaml.safe_dump({"name": conf, "space": SPACE, "search": {"num_trials": trials}})
    command = f"python -m sweeps run conf={conf}"
    info = SweepInfo(
        name=sweep,
        conf=conf,
        objectives=goals,
        folder=own,
        config_yaml=config,
        command=command,
    )
    recorder = Recorder.open(uri, conf, info)
    clock = _Clock(recorder)
    rng = random.Random(seed)
    values: dict[str, tuple[tuple[float, ...], dict[str, Any]]] = {}
    counts = dict.fromkeys(("finished", "pruned", "failed", "running", "stopped"), 0)
    for trial in (f"{number:04}" for number in range(trials)):
        value, state, params = _trial(recorder, clock, rng, trial, objectives)
        counts[state] += 1
        if value is not None and state != "failed":
            values[trial] = value, params
    front = [(trial, *values[trial]) for trial in goals.front({trial: value for trial, (value, _) in values.items()})]
    wall = max(clock.free)
    recorder.update(
        counts,
        front,
        {"wall_s": wall, "train_s": clock.train_s, "goodput": clock.train_s / wall / PLACES, "gpu_s": clock.held_s * 2},
    )
    recorder.close("finished")


class _Clock:
    """Simulated time: seconds since the start, at which each place for trials is free."""

    def __init__(self, recorder: Any):
        self.start = time.time()
        self.free = [0.0] * PLACES
        self.train_s = self.held_s = 0.0
        self.recorder = recorder


def _trial(
    recorder: Any, clock: _Clock, rng: random.Random, trial: str, objectives: int
) -> tuple[tuple[float, ...] | None, str, dict[str, Any]]:
    from sweeps.tracking.trial_history import Span

    params = _point(rng)
    place = min(range(PLACES), key=clock.free.__getitem__)
    held = clock.free[place] + rng.uniform(0.1, 3.0)
    trained = held + (rng.uniform(10, 20) if clock.free[place] == 0 else rng.uniform(0.05, 1.0))
    quality, speed = _quality(params), 900 / params["model.lora.r"] ** 0.5 * (1 + 0.1 * rng.random())
    fails = rng.random() < 0.04
    reports = rng.randint(1, 4) if fails else REPORTS if quality < 1.6 or rng.random() < 0.05 else rng.choice([2, 4, 8])
    seconds = 3.0 * reports * (1 + params["model.lora.r"] / 64)
    recorder.trials.start(trial, params, yaml.safe_dump(params), 1)
    best: tuple[float, ...] | None = None
    for report in range(1, reports + 1):
        step = STEPS * report // REPORTS
        loss = quality + 3 * math.exp(-6 * report / REPORTS) + rng.gauss(0, 0.02)
        loss = loss * 1e4 if quality > 4 else loss
        measured = {"eval/loss": loss, "speed": speed, "train/loss": loss * 0.9, "system/memory_mib": 900.0}
        at = clock.start + trained + seconds * report / reports
        recorder.trials.log(trial, step, measured, int(1000 * at))
        value = (loss, speed)[:objectives]
        best = value if best is None or value[0] < best[0] else best
    ended = trained + seconds
    workers = tuple(f"node-{place // 4}/{2 * (place % 4) + rank}" for rank in range(2))
    times = {"held": clock.start + held, "trained": clock.start + trained, "ended": clock.start + ended}
    recorder.trials.record_spans(trial, [Span(workers=workers, **times)])
    clock.free[place], clock.train_s, clock.held_s = ended, clock.train_s + seconds, clock.held_s + ended - held
    state = "failed" if fails else "finished" if reports == REPORTS else "pruned"
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB" if fails else None
    recorder.trials.end(trial, state, STEPS * reports // REPORTS, 1, error)
    return best, state, params


def _point(rng: random.Random) -> dict[str, Any]:
    from pydantic import TypeAdapter

    from sweeps.config.space import Distribution
    from sweeps.space.space import Space
    from sweeps.space.suggester import RandomDraws

    space = Space(TypeAdapter(dict[str, Distribution]).validate_python(SPACE))
    return space.sample(RandomDraws(rng.randrange(2**31)), lambda path: None)


def _quality(params: dict[str, Any]) -> float:
    """The loss at the end of a long training."""
    lr = abs(math.log10(params["train.lr"]) + 2.7 + (0.5 if params["train.optimizer"] == "sgd" else 0))
    rank = abs(math.log2(params["model.lora.r"]) - 4)
    dropout = params["model.encoder.attention.dropout_probability"]
    return 1.2 + 0.5 * lr**1.6 + 0.08 * rank + 0.6 * (dropout - 0.1) ** 2


def measure(folder: Path, uri: str, runs: int) -> list[tuple[str, float]]:
    """Median seconds of each command, from its start to its end, as a person waits for them."""
    rows = []
    for arguments in (["list"], ["show", SWEEP], ["show", SWEEP, "--json"], ["best", SWEEP], ["report", SWEEP]):
        command = [sys.executable, "-m", "sweeps", *arguments, "--tracking-uri", uri]
        if arguments[0] == "report":
            command += ["--output", str(folder / "report")]
        took = []
        for _ in range(runs):
            start = time.perf_counter()
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            took.append(time.perf_counter() - start)
        rows.append((" ".join(arguments), statistics.median(took)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--objectives", type=int, choices=(1, 2), default=1)
    parser.add_argument("--keep", type=Path, help="keep the store and the report in this folder")
    parser.add_argument("--runs", type=int, default=3, help="of each command; the median counts")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.keep or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        uri = f"sqlite:///{folder}/mlflow.db"
        if not (folder / "mlflow.db").exists():
            start = time.perf_counter()
            simulate(folder, arguments.trials, arguments.objectives)
            print(f"{arguments.trials} trials were recorded in {time.perf_counter() - start:.0f} s")
        for command, seconds in measure(folder, uri, arguments.runs):
            print(f"{command:24} {seconds:6.2f} s")
        size = (folder / "report" / "report.html").stat().st_size
        print(f"the page has {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
