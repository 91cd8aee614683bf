"""A recorded sweep with everything that the pages of sweeps and trials show."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from recording import open_recorder

from sweeps.folders.trial_files import log_name, logs_folder
from sweeps.tracking.recorder import Recorder
from sweeps.tracking.trial_history import FailedAttempt, Span, Weights

START = 1_790_000_000.0
CONFIG = """
task: {kind: model}
space:
  train.lr: {type: float, low: 1.0e-4, high: 1.0, log: true}
  train.optimizer: {type: categorical, choices: [adamw, sgd]}
  train.momentum: {type: float, low: 0.0, high: 1.0, when: {train.optimizer: sgd}}
"""
TRIALS = 12
BEST = "0006"
CUT_OFF = "0011"
"""Trial that had not ended when the sweep did."""
FAILED = "0003"
RETRIED = "0004"


def record_searched_sweep(uri: str, folder: Path, name: str = "searched", status: str = "interrupted") -> None:
    """Record a sweep of which a trial failed, one was tried twice, half were pruned, and one was cut off."""
    recorder = open_recorder(uri, name, folder=folder / name, config=CONFIG)
    for number in range(TRIALS):
        _record_trial(recorder, folder / name, f"{number:04}", number)
    counts = {"finished": 5, "pruned": 5, "failed": 1, "running": 1, "stopped": 0}
    recorder.update(counts, [(BEST, (0.2,), point(6))], {"wall_s": 60.0, "train_s": 50.0, "goodput": 0.8})
    assert not recorder.close(status)


def point(number: int) -> dict[str, Any]:
    params: dict[str, Any] = {"train.lr": 10 ** (-4 + number / 3), "train.optimizer": "sgd" if number % 2 else "adamw"}
    return params | ({"train.momentum": number / TRIALS} if number % 2 else {})


def _record_trial(recorder: Recorder, folder: Path, trial: str, number: int) -> None:
    trials, state = recorder.trials, "pruned" if number % 2 else "finished"
    trials.start(trial, point(number), "train: {lr: 0.1}", 1)
    for step in range(1, 2 if state == "pruned" else 11):
        loss = 0.2 + 0.05 * abs(number - 6) + 5 * math.exp(-step)
        trials.log(trial, step, {"eval/loss": loss, "train/loss": 0.9 * loss, "eval/accuracy": 1 - loss / 10})
    held = START + 10 * number
    spans = [Span(held=held, trained=held + 1, ended=held + 8, workers=("node-1", "node-2"))]
    error = None
    logs = logs_folder(folder, trial)
    logs.mkdir(parents=True)
    for rank in range(2):
        (logs / log_name(rank)).write_text("".join(f"worker {rank}, line {line}\n" for line in range(400)))
    if trial == RETRIED:
        trials.record_failures(trial, [FailedAttempt(attempt=1, ended=held + 8, error="WorkerDied: node-2 is gone")])
        spans.append(Span(held=held + 9, trained=held + 10, ended=held + 20, workers=("node-1", "node-3")))
    if trial == FAILED:
        state, error = "failed", "ValueError: the loss is not finite"
        (logs / "attempt-1.traceback.txt").write_text("Traceback (most recent call last):\nValueError: not finite\n")
    trials.record_spans(trial, spans)
    if trial == BEST:
        checkpoint = folder / "trials" / trial / "step-00000010"
        checkpoint.mkdir()
        (checkpoint / "model.bin").write_bytes(b"x")
        trials.record_checkpoint(trial, str(checkpoint), "best", weights=Weights(10, (0.25,)))
    if trial != CUT_OFF:
        trials.end(trial, state, 1 if state == "pruned" else 10, len(spans), error)
