"""Recorders, stores and servers for the tests of what is recorded in MLflow."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweeps.objectives import Objectives
from sweeps.tracking.recorder import Recorder

CONFIG = "train:\n  lr: 0.01\n"
COMMAND = "python -m sweeps run conf=digits"
LOSS = Objectives(("eval/loss",), ("min",))
POINT = {"train.lr": 0.0021, "model.lora.r": 16, "train.optimizer": "adamw"}


def new_recorder(uri: str, sweep: str = "digits-1", objectives: Objectives = LOSS, **more: Any) -> Recorder:
    folder = Path("outputs", sweep).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return Recorder(uri, "digits", sweep=sweep, conf="digits", objectives=objectives, folder=folder, **more)


def open_recorder(uri: str, sweep: str = "digits-1", *, resume: bool = False, **more: Any) -> Recorder:
    recorder = new_recorder(uri, sweep, **more)
    recorder.open(CONFIG, COMMAND, "Digits.", resume=resume)
    return recorder


def record_small_sweep(uri: str, sweep: str = "digits-1") -> None:
    recorder = open_recorder(uri, sweep)
    for trial, state in enumerate(["finished", "pruned", "failed", "stopped"]):
        point = POINT | {"train.lr": 0.001 * (trial + 1)}
        recorder.start_trial(str(trial), point, CONFIG, 1)
        for step in range(1, 6):
            recorder.log(str(trial), step, {"eval/loss": trial + 1 / step, "train/loss": 1.0}, 1000 * step)
        error = "Traceback\nValueError: no" if state == "failed" else None
        recorder.end_trial(str(trial), state, 5, 1, error)
    counts = {"finished": 1, "pruned": 1, "failed": 1, "stopped": 1, "running": 0}
    recorder.update(
        counts, [("0", (0.2,), POINT | {"train.lr": 0.001})], {"wall_s": 7.0, "train_s": 5.0, "goodput": 0.7}
    )
    assert not recorder.close("finished")


def history(uri: str, run_id: str, name: str) -> list[tuple[int, float]]:
    from mlflow import MlflowClient

    return sorted((point.step, point.value) for point in MlflowClient(uri).get_metric_history(run_id, name))


class Server:
    """A real tracking server on the loopback interface, which can be killed, frozen and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        arguments = ["server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        stores = ["--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db"]
        artifacts = ["--artifacts-destination", str(self.folder / "artifacts")]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *arguments, *stores, *artifacts],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # its workers are its own group, which is signalled whole
            env=os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        )
        wait_until(self.answers, 90)

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/api/2.0/mlflow/experiments/get?experiment_id=0", timeout=30):
                return True
        except OSError:
            return False

    def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()


def wait_until(condition: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
