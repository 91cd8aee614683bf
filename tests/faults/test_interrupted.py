"""Ctrl-C at any moment: what workers have measured is recorded, and the trial's note says what is kept of it."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from lost_broker import NET, SLOW_NET
from processes import outputs
from running import NO_PREFLIGHT, SHORT, Done, own_function, start
from waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ONE_TRIAL = ("search/scheduler=none", "search.num_trials=1", "scaling.num_workers=1", "cluster.num_cpus=1")
USERS = """
import time
from pathlib import Path
import ray.train

def train(config):
    Path(config["begun"]).touch()
    time.sleep(config["sleep_s"])
    for step in range(1, 21):
        ray.train.report({"loss": 1 / step})
        time.sleep(0.5)
"""


def function_sweep(folder: Path) -> tuple[str, ...]:
    return own_function(folder, USERS, f"{{begun: {folder / 'begun'}, sleep_s: 0}}")


def digits_sweep(folder: Path) -> tuple[str, ...]:
    (folder / "nets.py").write_text(NET, encoding="utf-8")
    return ("conf=digits", *SHORT, *SLOW_NET)


def interrupted(folder: Path, *arguments: str, when: Any, by: int = signal.SIGINT) -> Done:
    """A sweep of one trial that is interrupted as soon as a condition is true."""
    process = start(
        folder, "run", *arguments, *ONE_TRIAL, NO_PREFLIGHT, "--name=stops", "tracking.report=false", "--json"
    )
    wait_until(lambda: process.poll() is not None or when(), 200)
    if by == signal.SIGHUP:  # as the kernel does at the end of a terminal
        os.killpg(process.pid, by)
    process.send_signal(by)
    out, err = outputs(process, 100)
    assert process.returncode == 130, err
    return Done(folder, 130, err, json.loads(out))


def lines(folder: Path) -> list[dict[str, Any]]:
    """The lines of the trial's report log."""
    path = folder / "outputs" / "stops" / "trials" / "0000" / "reports.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def reported(folder: Path) -> list[int]:
    return [line["step"] for line in lines(folder) if line["kind"] == "Report"]


def recorded(done: Done, metric: str) -> list[int]:
    (trial,) = done.trials()
    return [step for step, _ in done.history(trial.info.run_id, metric)]


def test_a_trial_that_is_interrupted_before_its_first_report_says_that_it_has_saved_nothing(tmp_path: Path) -> None:
    arguments = (*function_sweep(tmp_path), "task.arguments.sleep_s=3")
    done = interrupted(tmp_path, *arguments, when=(tmp_path / "begun").exists)
    (trial,) = done.trials()
    note = trial.data.tags["mlflow.note.content"]
    assert "saved its state" not in note
    assert "It has saved no state" in note
    assert recorded(done, "loss") == [line["step"] for line in lines(tmp_path)]


@pytest.mark.parametrize(
    ("kind", "by"), [("function", signal.SIGINT), ("digits", signal.SIGINT), ("digits", signal.SIGHUP)]
)
def test_every_report_until_the_end_is_recorded_when_a_sweep_is_interrupted(tmp_path: Path, kind: str, by: int) -> None:
    make, metric = (function_sweep, "loss") if kind == "function" else (digits_sweep, "eval/accuracy")
    done = interrupted(
        tmp_path, *make(tmp_path), when=lambda: any(line["kind"] == "Report" for line in lines(tmp_path)), by=by
    )
    assert "Ray is gone" not in done.err
    time.sleep(1)
    reports = [line["step"] for line in lines(tmp_path) if line["kind"] == "Report"]
    assert reports
    assert recorded(done, metric) == reports
    (trial,) = done.document["trials"]
    assert trial["steps"] == max(line["step"] for line in lines(tmp_path))
    (run,) = done.trials()
    folder = tmp_path / "outputs" / "stops" / "trials" / "0000"
    saved = max((int(path.name.removeprefix("step-")) for path in folder.glob("step-*")), default=None)
    assert (saved is None) == (kind == "function")
    kept = "It has saved no state" if saved is None else f"Its state of step {saved} is saved"
    if saved is not None and saved >= trial["steps"]:  # it saves at a step that it may not log
        kept = "It saved its state"
    assert kept in run.data.tags["mlflow.note.content"]
