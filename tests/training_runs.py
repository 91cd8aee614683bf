"""Small trainings for tests, in this process or in several that communicate over gloo."""

from __future__ import annotations

import copy
import functools
import gc
import json
import os
import pickle
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import pytest
from fork_server import exit_statuses, run_forked
from waiting import wait_until

from sweeps_train.config import TRAINING_CONFIG, TrainingConfig
from sweeps_train.reports.progress import Progress
from sweeps_train.reports.reporter import Stop

T = TypeVar("T")
PROMPTS = "prompts.jsonl"

IMAGES: dict[str, Any] = {
    "task": {"kind": "image_classification"},
    "model": {"kind": "conv_net", "channels": 4, "dropout": 0.2},
    "data": {"kind": "digits", "eval_fraction": 0.05},
    "train": {"max_steps": 8, "global_batch_size": 400, "lr": 1e-2, "eval_every": 4, "log_every": 2},
    "strategy": {"kind": "ddp"},
    "checkpoint": {},
}
"""Four batches are more than an epoch, and the 90 held-out images do not divide into whole batches."""

TEXT: dict[str, Any] = {
    "task": {"kind": "causal_lm"},
    "model": {
        "kind": "causal_lm",
        "path": "builtin:tiny_llama",
        "lora": {"r": 4, "dropout": 0.2, "target_modules": "attention"},
    },
    "data": {
        "kind": "text",
        "path": PROMPTS,
        "prompt_field": "prompt",
        "completion_field": "completion",
        "packing": False,
        "sequence_length": 64,
        "eval_fraction": 0.2,
    },
    "train": {"max_steps": 8, "global_batch_size": 8, "lr": 1e-2, "eval_every": 4, "log_every": 2},
    "strategy": {"kind": "ddp"},
    "checkpoint": {},
}
"""25 documents of very different lengths, of which 5 are held out; needs ``write_prompts``."""

PACKED: dict[str, Any] = {"prompt_field": None, "completion_field": None, "text_field": "completion", "packing": True}
"""Changes of the data of ``TEXT``: whole texts, of which several share a sequence."""


def configured(base: dict[str, Any], **changes: Any) -> TrainingConfig:
    """A config with some sections changed: ``configured(TEXT, train={"lr": 1e-3})``."""
    config = copy.deepcopy(base)
    for section, values in changes.items():
        config[section] = {**config[section], **values}
    return TRAINING_CONFIG.validate_python(config)


def write_prompts(folder: Path) -> Path:
    file = folder / PROMPTS
    rows = [{"prompt": f"Count to {n}: ", "completion": " ".join(map(str, range(n)))} for n in range(1, 26)]
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return file


STOP_AT_STEP_4, DURING_EVALUATION_AT_STEP_4, STOP_AT_STEP_5, STOP_AT_STEP_6 = 3, 4, 6, 7
"""Number of times that a reporter is asked to stop until then, with a record every 2 steps and an evaluation every 4:
once at steps 1 and 2, three times at 4 (record, evaluation, report), once at 5 and 6, and so on."""


@dataclass
class Recorder:
    """Reporter that stores everything, and asks to stop when it has been asked often enough."""

    stop_when_asked: int | None = None
    stop: Stop = Stop.SAVE
    logs: dict[int, dict[str, float]] = field(default_factory=dict)
    reports: list[tuple[int, dict[str, float], str | None, bool]] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    """Progress at each report."""
    checkpoints: list[tuple[int, dict[str, float], str]] = field(default_factory=list)
    """Checkpoints that were saved after the report of their step."""
    notes: list[str] = field(default_factory=list)
    asked: int = 0
    waits_for_decision: bool = False

    def log(self, progress: Progress, metrics: dict[str, float]) -> None:
        assert progress.step not in self.logs
        self.logs[progress.step] = metrics

    def report(self, progress: Progress, metrics: dict[str, float], checkpoint: str | None, done: bool) -> None:
        # Seconds of the process that reports differ when another one repeats a report.
        measured = {name: value for name, value in metrics.items() if not name.startswith("time/")}
        self.reports.append((progress.step, measured, checkpoint, done))
        self.progress.append(progress)

    def checkpoint(self, progress: Progress, metrics: dict[str, float], checkpoint: str) -> None:
        self.checkpoints.append((progress.step, metrics, checkpoint))

    def note(self, text: str) -> None:
        self.notes.append(text)

    def should_stop(self, *, can_save: bool = True) -> Stop:
        self.asked += 1
        asks = self.stop_when_asked is not None and self.asked >= self.stop_when_asked
        return self.stop if asks else Stop.NO

    @property
    def final(self) -> dict[str, float]:
        assert [done for *_, done in self.reports] == [False] * (len(self.reports) - 1) + [True]
        return self.reports[-1][1]

    @property
    def eval_losses(self) -> list[float]:
        """Losses of all evaluations."""
        return [metrics["eval/loss"] for _, metrics, *_ in self.reports]


def run(config: TrainingConfig, folder: Path | None = None, **options: Any) -> Recorder:
    """Train on the workers of this process's group; only rank 0's recorder receives anything."""
    from sweeps_train.loop import train
    from sweeps_train.steps import stop_schedule

    recorder = Recorder(
        options.pop("stop_when_asked", None),
        options.pop("stop", Stop.SAVE),
        waits_for_decision=options.pop("waits_for_decision", False),
    )
    # How often workers ask whether to stop is not to depend on the machine's load.
    with mock.patch.object(stop_schedule, "ASK_WITHIN_S", 1e9):
        train(config, reporter=recorder, checkpoint_folder=str(folder) if folder else None, **options)
    return recorder


def losses_and_reads(train: Callable[[], Recorder]) -> tuple[dict[int, float], list[str]]:
    """Losses of a training by step, and the folders from which it has read a state."""
    from sweeps_train.lanes import lane

    read: list[str] = []
    load = lane.load_state

    def loaded(path: Path, *arguments: Any) -> Any:
        read.append(str(path))
        return load(path, *arguments)

    with mock.patch.object(lane, "load_state", loaded):
        recorder = train()
    return {step: metrics["eval/loss"] for step, metrics, *_ in recorder.reports}, read


def after_each_step(patches: pytest.MonkeyPatch, act: Callable[[Any], object]) -> None:
    """Call a function with the lane after each of its steps."""
    from sweeps_train.lanes.lane import Lane

    end_step = Lane.end_step

    def acting(self: Any, *made: Any) -> None:
        end_step(self, *made)
        act(self)

    patches.setattr(Lane, "end_step", acting)


def kill_in_step_5(rank: int, checkpoint: Path) -> None:
    """Let this process kill itself in its fifth step if it has this rank, when a checkpoint is complete."""
    from sweeps_train.lanes import lane

    update = lane.Lane._update_weights

    def killed(self: Any) -> bool:
        if self.progress.step == 5:
            wait_until(checkpoint.exists)
            if self.workers.rank == rank:
                os.kill(os.getpid(), signal.SIGKILL)
        return update(self)

    lane.Lane._update_weights = killed  # type: ignore[method-assign] # in a process of its own


def on_two_workers(scenario: Callable[[], T], folder: Path) -> list[T]:
    return on_workers(2, scenario, folder)


def on_workers(number: int, scenario: Callable[[], T], folder: Path, backend: str = "gloo") -> list[T]:
    """Run a scenario (a function of a module) on every rank in ``folder``, and return the results by rank; over NCCL,
    each on its own GPU."""
    statuses, results = exits_of_workers(number, scenario, folder, backend)
    assert statuses == [0] * number
    return results


def exits_of_workers(
    number: int, scenario: Callable[[], T], folder: Path, backend: str = "gloo"
) -> tuple[list[int], list[T]]:
    """Run a scenario as ``on_workers`` does; returns the exit statuses of all ranks, and the results of those that have
    one. Over gloo the workers are forks of a process that has imported what trainings do."""
    meeting = Path(tempfile.mkdtemp(dir=folder))
    workers = [functools.partial(_work, scenario, folder, meeting, number, backend, rank) for rank in range(number)]
    statuses = exit_statuses("spawn", workers) if backend != "gloo" else run_forked(workers)
    files = [meeting / str(rank) for rank in range(number)]
    return statuses, [pickle.loads(file.read_bytes()) for file in files if file.exists()]


def _work(scenario: Callable[[], Any], folder: Path, meeting: Path, number: int, backend: str, rank: int) -> None:
    import torch
    import torch.distributed as dist

    os.chdir(folder)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, init_method=f"file://{meeting}/rendezvous", rank=rank, world_size=number)
    try:
        (meeting / str(rank)).write_bytes(pickle.dumps(scenario()))
    finally:
        gc.collect()  # a wrapped model in a reference cycle would keep the group's threads until the process ends
        dist.destroy_process_group()
