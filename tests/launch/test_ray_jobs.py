"""Sweeps submitted to a real Ray cluster's job server, from a folder that the cluster does not see."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from stores import make_store

from sweeps.cli import run_command

MODULE = """
import json, tempfile, time
from pathlib import Path

import ray.train
import sweeps_train
from ray.train import Checkpoint

from mine import weight


def train(config):
    first = 1
    if (before := ray.train.get_checkpoint()) is not None:
        with before.as_directory() as folder:
            first = json.loads(Path(folder, "step.json").read_text()) + 1
    travelled = float("_ray_pkg" in sweeps_train.__file__)
    for step in range(first, 31):
        time.sleep(0.5)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step.json").write_text(json.dumps(step))
            report = {"loss": weight.WEIGHT * config["x"] / step, "travelled": travelled}
            ray.train.report(report, checkpoint=Checkpoint(folder))
"""
CONF = """# Test of Ray Jobs.
defaults: [ray_train_function, _self_]
name: own
task: {_target_: mine.training.train}
search: {metric: loss, mode: min, num_trials: 2, max_concurrent: 1, scheduler: {kind: none}}
scaling: {num_workers: 1}
tracking: {report: false}
"""


@pytest.fixture
def here(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    return working_folder


STORES = ("output_dir=/shared/outputs", "tracking.uri=http://mlflow:5000")


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (STORES, ["cluster.address=local", "http://HOST:8265", "RAY_API_SERVER_ADDRESS"]),
        (
            ["cluster=ray", "cluster.address=http://127.0.0.1:1"],
            ["tracking.uri=sqlite:///mlflow.db", "output_dir=outputs"],
        ),
        ([*STORES, "cluster=ray", "cluster.address=http://127.0.0.1:1"], ["http://127.0.0.1:1", "ray[default]"]),
    ],
)
def test_mistakes_are_named_before_anything_is_submitted(
    here: Path, tokens: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["submit", "conf=digits", *tokens, "--to=ray"])[0] == 2
    message = capsys.readouterr().err
    assert all(word in message for word in words), message


def test_the_address_of_a_dashboard_is_refused_where_a_cluster_is_joined(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["run", "conf=digits", "cluster=ray", "cluster.address=http://host:8265", "--dry-run"])[0] == 2
    assert "submit --to ray" in capsys.readouterr().err


def test_a_print_shows_the_job_and_its_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "mine.py").write_text("x = 1\n")
    tokens = ["conf=digits", *STORES, "cluster=ray", "cluster.address=http://head:8265"]
    assert run_command(["submit", *tokens, "--to=ray", "--name=mine", "--print"])[0] == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["address"] == "http://head:8265"
    assert shown["entrypoint"].startswith("python -m sweeps run conf=digits")
    assert {"mine.py", "sweeps/conf/digits.yaml", "sweeps/cli/run.py", "sweeps_train/loop.py"} <= set(shown["files"])


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass(frozen=True)
class Head:
    """A Ray cluster of one node with a job server."""

    dashboard: str
    environment: dict[str, str]


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    if importlib.util.find_spec("aiohttp_cors") is None:
        pytest.skip("needs ray[default]: pip install -e '.[cluster]'")
    folder = tmp_path_factory.mktemp("head")
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    # The cluster has no Sweeps of this checkout.
    checkout = Path(__file__).parents[2]
    paths = [each for each in environment.get("PYTHONPATH", "").split(":") if not Path(each).is_relative_to(checkout)]
    port, dashboard = free_port(), free_port()
    process = subprocess.Popen(
        [
            *("ray", "start", "--head", "--block", f"--port={port}", f"--dashboard-port={dashboard}", "--num-cpus=2"),
            *(f"--temp-dir=/tmp/ray-jobs-{os.getpid()}", "--min-worker-port=0", "--max-worker-port=0"),
            *("--dashboard-agent-listen-port=0", f"--ray-client-server-port={free_port()}", "--disable-usage-stats"),
        ],
        cwd=folder,
        env={**environment, "PYTHONPATH": ":".join(paths)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait(lambda: answers(dashboard), 120, "dashboard")
        yield Head(f"http://127.0.0.1:{dashboard}", environment)
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(f"/tmp/ray-jobs-{os.getpid()}", ignore_errors=True)


def answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def wait(is_so: Callable[[], bool], within_s: float, what: str) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, f"no {what} within {within_s} s"
        time.sleep(1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sweep_runs_on_a_cluster_and_is_watched_stopped_and_resumed_from_elsewhere(
    head: Head, tmp_path: Path
) -> None:
    here, other, shared = (tmp_path / name for name in ("here", "other", "shared"))
    for folder in (here / "mine", here / "my_conf", other, shared):
        folder.mkdir(parents=True)
    (here / "mine" / "__init__.py").touch()
    (here / "mine" / "weight.py").write_text("WEIGHT = 2.0\n")
    (here / "mine" / "training.py").write_text(MODULE)
    (here / "my_conf" / "own.yaml").write_text(CONF)
    make_store(shared / "mlflow.db")
    store = f"sqlite:///{shared}/mlflow.db"

    def sweeps(folder: Path, *arguments: str, status: int = 0) -> Any:
        command = [sys.executable, "-m", "sweeps", *arguments, "--json"]
        done = subprocess.run(command, cwd=folder, env=head.environment, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        return json.loads(done.stdout)

    stores = [f"output_dir={shared}/outputs", f"tracking.uri={store}"]
    cluster = ["cluster=ray", f"cluster.address={head.dashboard}"]
    own = ["~task.arguments", "~space", "+task.arguments.x=0.5", "task.arguments.x=interval(0.0, 1.0)"]
    submitted = sweeps(
        here, "submit", "conf=own", *own, *stores, *cluster, "--config-dir=my_conf", "--to=ray", "--name=travelled"
    )
    assert submitted == {"sweep": "travelled", "job": "travelled", "address": head.dashboard}
    shutil.move(here, tmp_path / "gone")  # the machine that submitted it

    def shown() -> dict[str, Any]:
        found = sweeps(other, "list", f"--tracking-uri={store}")
        if not any(each["sweep"] == "travelled" for each in found):
            return {"status": "unknown", "trials": []}
        return dict(sweeps(other, "show", "travelled", f"--tracking-uri={store}"))

    wait(lambda: any(trial["steps"] or trial["value"] for trial in shown()["trials"]), 240, "report")
    assert sweeps(other, "stop", "travelled", f"--tracking-uri={store}")["status"] == "stopped"
    shutil.copytree(tmp_path / "gone" / "mine", other / "mine")
    again = sweeps(other, "submit", "--resume=travelled", f"--tracking-uri={store}", "--to=ray")
    assert again["address"] == head.dashboard  # as the sweep's record has it
    wait(lambda: shown()["status"] == "finished", 300, "end")
    trials = shown()["trials"]
    assert [trial["state"] for trial in trials] == ["finished", "finished"]
    client = MlflowClient(store)
    for trial in trials:
        points = client.get_metric_history(trial["run_id"], "travelled")
        assert [point.step for point in points] == list(range(1, 31))
        assert {point.value for point in points} == {1.0}  # the workers have the Sweeps that was sent
