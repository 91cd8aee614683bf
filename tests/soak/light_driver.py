"""A driver for soaks: it plans, holds its folder, journals and records as the real one does, and trains nothing. Fifty
sweeps with Ray would take two processors for hours."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

from sweeps.driver.finish import close_record
from sweeps.driver.folder_access import held, make_folder, remove_folder
from sweeps.driver.signals import ended_by_signals
from sweeps.driver.startup import open_recorder
from sweeps.plan.plan import Plan
from sweeps.plan.saved_sweep import save
from sweeps.tracking.client import connect
from sweeps.tracking.control_channel import RequestListener, clear_request
from sweeps.tracking.journal import Journal
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.values import now_ms

TRIALS, STEPS = 3, 4
STEP_S = 0.25
TRAINED = "trained.jsonl"
"""File in the sweep's folder with a line for each step: who trained it, and when."""


@ended_by_signals()
def run(plan: Plan, _view: Any) -> SweepRecord:
    """Run a new sweep."""
    make_folder(plan)
    try:
        with held(plan) as copy:
            connect(plan.config.tracking.uri)
            save(plan)
            _drive(plan, open_recorder(plan, copy), None)
    except BaseException:
        if not Journal.is_in(plan.folder):
            remove_folder(plan)
        raise
    return load_sweep(plan.config.tracking.uri, plan.name)


@ended_by_signals()
def resume(plan: Plan, _view: Any) -> SweepRecord:
    """Go on with a sweep whose driver was killed."""
    with held(plan) as copy:
        clear_request(load_sweep(plan.config.tracking.uri, plan.name))
        recorder = open_recorder(plan, copy, resume=True)
        _drive(plan, recorder, load_sweep(plan.config.tracking.uri, plan.name))
    return load_sweep(plan.config.tracking.uri, plan.name)


def _drive(plan: Plan, recorder: Any, earlier: SweepRecord | None) -> None:
    asked, status = threading.Event(), "interrupted"
    known = {trial.trial: trial for trial in earlier.trials} if earlier is not None else {}

    def handle(_: Any) -> str:
        asked.set()
        return "it ends"

    try:
        with RequestListener(recorder.ids, handle, plan.location):
            for number in range(TRIALS):
                trial = f"{number:04}"
                before = known.get(trial)
                if before is not None and before.state == "finished":
                    continue
                attempt = before.attempts + 1 if before is not None else 1
                recorder.trials.start(trial, {"train.lr": 0.1 / (number + 1)}, "train: {}\n", attempt)
                for step in range(before.steps + 1 if before is not None else 1, STEPS + 1):
                    if asked.wait(STEP_S):
                        recorder.trials.end(trial, "stopped", step - 1, attempt)
                        status = "stopped"
                        return
                    _note(plan, trial, step)
                    value = 1 / (1 + step + number)
                    recorder.trials.log(trial, step, dict.fromkeys(plan.config.search.metrics, value), now_ms())
                recorder.trials.end(trial, "finished", STEPS, attempt)
        status = "finished"
    finally:
        counts = dict.fromkeys(("finished", "pruned", "failed", "running", "stopped"), 0)
        recorder.update(counts | {"finished": TRIALS}, [], {"wall_s": 1.0, "train_s": 1.0, "goodput": 1.0})
        close_record(plan, recorder, status)


def _note(plan: Plan, trial: str, step: int) -> None:
    line = json.dumps({"trial": trial, "step": step, "pid": os.getpid(), "at": time.monotonic()})
    with (plan.folder / TRAINED).open("a", encoding="ascii") as file:
        file.write(f"{line}\n")
