"""Recorders, stores and servers for the tests of what is recorded in MLflow."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stores import copy_recorded, make_store
from waiting import wait_until

from sweeps.config.objectives import Objectives
from sweeps.folders.sweep_folder import SWEEP_FILE
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.recorder import Recorder
from sweeps.tracking.sweep_run import SweepInfo
from sweeps.tracking.uris import sqlite_path

CONFIG = "train:\n  lr: 0.01\n"
COMMAND = "python -m sweeps run conf=digits"
LOSS = Objectives(("eval/loss",), ("min",))
POINT = {"train.lr": 0.0021, "model.lora.r": 16, "train.optimizer": "adamw"}


def open_recorder(
    uri: str,
    sweep: str = "digits-1",
    objectives: Objectives = LOSS,
    *,
    conf: str = "digits",
    config: str = CONFIG,
    command: str = COMMAND,
    folder: Path | None = None,
    experiment: str = "digits",
    **more: Any,
) -> Recorder:
    if (store := sqlite_path(uri)) is not None:
        make_store(store)
    folder = folder or Path("outputs", sweep).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    info = SweepInfo(
        name=sweep,
        conf=conf,
        objectives=objectives,
        folder=folder,
        config_yaml=config,
        command=command,
    )
    return Recorder.open(uri, experiment, info, **more)


@contextmanager
def one_trial(uri: str, sweep: str = "digits-1", **options: Any) -> Iterator[Recorder]:
    """Recorder of a sweep whose trial ``0`` has started; at the end of the block the sweep is recorded whole."""
    recorder = open_recorder(uri, sweep, **options)
    recorder.trials.start("0", POINT, CONFIG, 1)
    yield recorder
    assert not recorder.close("finished")


def record_small_sweep(uri: str, sweep: str = "digits-1", config: str = CONFIG, status: str = "finished") -> None:
    recorder = open_recorder(uri, sweep, config=config)
    for trial, state in enumerate(["finished", "pruned", "failed", "stopped"]):
        point = POINT | {"train.lr": 0.001 * (trial + 1)}
        recorder.trials.start(str(trial), point, config, 1)
        for step in range(1, 6):
            recorder.trials.log(str(trial), step, {"eval/loss": trial + 1 / step, "train/loss": 1.0}, 1000 * step)
        error = "Traceback\nValueError: no" if state == "failed" else None
        recorder.trials.end(str(trial), state, 5, 1, error)
    counts = {"finished": 1, "pruned": 1, "failed": 1, "stopped": 1, "running": 0}
    recorder.update(
        counts, [("0", (0.2,), POINT | {"train.lr": 0.001})], {"wall_s": 7.0, "train_s": 5.0, "goodput": 0.7}
    )
    assert not recorder.close(status)


def copy_small_sweeps(folder: Path) -> str:
    """Copy into a folder a store of the sweeps digits-0, digits-1 and digits-2, as ``record_small_sweep`` records them,
    and return its URI."""

    def record(uri: str) -> None:
        for number in range(3):
            record_small_sweep(uri, f"digits-{number}")

    return copy_recorded("small-sweeps", record, folder)


def record_with_checkpoints(uri: str, *names: str, experiment: str = "digits") -> None:
    """Sweeps that have ended, each with four trials that hold checkpoints, the third of them the best."""
    for name in names:
        recorder = open_recorder(uri, name, experiment=experiment)
        folder = Path("outputs", name).absolute()
        (folder / SWEEP_FILE).write_text(json.dumps({"name": name}), encoding="utf-8")
        for number, value in enumerate((0.4, 0.3, 0.1, 0.2)):
            trial = f"{number:04}"
            checkpoint = folder / "trials" / trial / "step-00000010"
            checkpoint.mkdir(parents=True)
            (checkpoint / "model.bin").write_bytes(b"x" * 1000)
            (checkpoint.parent / "reports.jsonl").write_text("{}\n", encoding="utf-8")
            recorder.trials.start(trial, {"train.lr": value}, CONFIG, 1)
            recorder.trials.log(trial, 10, {"eval/loss": value})
            recorder.trials.record_checkpoint(trial, str(checkpoint), "best")
            recorder.trials.end(trial, "finished", 10, 1)
        recorder.update({"finished": 4}, [("0002", (0.1,), {"train.lr": 0.1})], {"wall_s": 1.0})
        assert not recorder.close("finished")


def held(uri: str, name: str) -> dict[str, tuple[bool, bool, bool]]:
    """By trial: whether it has a checkpoint in its folder, one in MLflow, and a tag that leads there."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    return {
        trial.trial: (
            any((Path("outputs") / name / "trials" / trial.trial).glob("step-*")),
            bool(client.list_artifacts(trial.run_id, "checkpoints/best")),
            trial.checkpoint is not None,
        )
        for trial in load_sweep(uri, name).trials
    }


def history(uri: str, run_id: str, name: str) -> list[tuple[int, float]]:
    from mlflow import MlflowClient

    return sorted((point.step, point.value) for point in MlflowClient(uri).get_metric_history(run_id, name))


def artifact_files(uri: str, run_id: str, path: str, folder: Path) -> dict[str, str]:
    from mlflow.artifacts import download_artifacts

    folder.mkdir(exist_ok=True)
    root = Path(download_artifacts(run_id=run_id, artifact_path=path, tracking_uri=uri, dst_path=str(folder)))
    return {file.relative_to(root).as_posix(): file.read_text() for file in root.rglob("*") if file.is_file()}


class Server:
    """A real tracking server on the loopback interface, which can be killed, frozen and started again."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        store: str | None = None,
        artifacts: str | None = None,
        certificate: tuple[Path, Path] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Make a server with an SQLite file and artifacts in its folder, unless it is given others. With the files of a
        certificate and its key it speaks TLS. ``options`` are further ones of ``mlflow server``."""
        self.folder = folder
        self.port = free_port()
        self.uri = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"
        self._options = ["--artifacts-destination", artifacts or str(folder / "artifacts"), *options]
        # An idle connection is kept; by default it is closed after five seconds.
        web = "--timeout-keep-alive 60"
        if certificate:
            web += f" --ssl-certfile {certificate[0]} --ssl-keyfile {certificate[1]}"
        self._options += ["--uvicorn-opts", web]
        self._environment = {
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_BACKEND_STORE_URI": store or f"sqlite:///{folder}/mlflow.db",
            **(environment or {}),
        }
        self.start()

    def start(self) -> None:
        arguments = ["server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", *arguments, *self._options],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,  # its workers are its own group, which is signalled whole
                env=os.environ | self._environment,
            )
        wait_until(self.answers, 90)

    def answers(self) -> bool:
        assert self.process.poll() is None, (self.folder / "server.log").read_text()
        path = "/api/2.0/mlflow/experiments/get?experiment_id=0"
        context = ssl._create_unverified_context() if self.uri.startswith("https") else None
        try:
            with urllib.request.urlopen(f"{self.uri}{path}", timeout=30, context=context):
                return True
        except urllib.error.HTTPError as error:
            return error.code == 401
        except OSError:
            return False

    def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
