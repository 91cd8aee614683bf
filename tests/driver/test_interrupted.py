"""Ctrl-C ends a running sweep cleanly."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from processes import outputs
from running import NO_PREFLIGHT, Done, start
from waiting import wait_until

from sweeps.tracking.reader import load_sweep

pytestmark = pytest.mark.timeout(480)


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    tokens = ("conf=digits", "train.max_steps=1000000", "search=random", NO_PREFLIGHT, "--name=endless")
    with start(tmp_path, "run", *tokens, "--json") as process:  # whose pipes are closed, however the test ends
        yield process
        process.kill()


def test_ctrl_c_stops_cleanly_and_loses_nothing(endless: subprocess.Popen[str], tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/mlflow.db"
    wait_until(lambda: reported(store, "endless") >= 3, 300)
    family = psutil.Process(endless.pid).children(recursive=True)
    assert len(family) > 3
    endless.send_signal(signal.SIGINT)
    began = time.monotonic()
    out, err = outputs(endless, 60)
    assert time.monotonic() - began < 30  # a few seconds, and as many for a busy machine
    assert endless.returncode == 130, err
    assert "Traceback" not in err
    wait_until(lambda: not any(map(is_alive, family)), 30)  # Ray ends them as the driver ends, and later
    done = Done(tmp_path, 130, err, json.loads(out))
    assert done.document["status"] == "interrupted"
    assert done.document["counts"]["stopped"] == 1
    (trial,) = done.trials()
    assert trial.info.status == "KILLED"
    steps = [point.step for point in done.client.get_metric_history(trial.info.run_id, "eval/loss")]
    assert sorted(steps) == [22 * count for count in range(1, len(steps) + 1)]
    checkpoints = sorted((tmp_path / "outputs" / "endless" / "trials" / "0000").glob("step-*"))
    assert int(checkpoints[-1].name.removeprefix("step-")) >= max(steps)


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended in between
        return False


def reported(store: str, sweep: str) -> int:
    """Evaluations recorded so far, without loading MLflow while the sweep makes its database."""
    from sweeps.errors import SweepsError

    try:
        trials = load_sweep(store, sweep).trials
    except SweepsError:
        return 0
    return max((trial.steps // 22 for trial in trials), default=0)
