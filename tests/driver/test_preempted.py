"""Trials whose nodes or workers are taken away: they save, go on elsewhere as if nothing had happened, and have not
failed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray_nodes import RAY, RayNodes
from running import Done, ended, run, start, verb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

USERS = """
import os, signal, time
from pathlib import Path
import ray
import torch
from sweeps_train.checkpoints import saver

def terminate_once():
    try:
        Path("sent").touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGTERM)

class Net(torch.nn.Module):
    def __init__(self, seconds=0.0, terminate="", waits=False):
        super().__init__()
        self.seconds, self.terminate, self.waits, self.steps = seconds, terminate, waits, 0
        self.layers = torch.nn.Linear(64, 10)
        if terminate == "saving":
            take = saver.Snapshot.take
            def terminated(snapshot, *arguments):
                done = take(snapshot, *arguments)
                if snapshot._workers.rank == 0 and self.steps >= 20:
                    terminate_once()
                return done
            saver.Snapshot.take = terminated

    def forward(self, images):
        if self.training:
            self.steps += 1
            if os.environ["RANK"] == "1":
                Path("steps.new").write_text(f"{self.steps} {ray.get_runtime_context().get_node_id()}")
                Path("steps.new").rename("steps")
                if self.terminate == "stepping" and self.steps == 23:
                    terminate_once()
            while self.waits and self.steps == 25 and not Path("taken").exists():
                time.sleep(0.05)  # so that the trial does not end before its node is taken, however long that takes
            time.sleep(self.seconds)
        return self.layers(images.flatten(1))
"""
SWEEP = (
    *("conf=digits", "space=none", "model=custom", "model._target_=users.Net", "preflight.timeout_s=0"),
    *("search=random", "search.num_trials=1", "train.max_steps=60", "train.eval_every=10", "train.log_every=10"),
    "checkpoint.background=true",
    *("search.metric=eval/loss", "search.mode=min", "search.max_retries=0"),
)
SLOW_S = 0.25


def folder_with_code(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "users.py").write_text(USERS, encoding="utf-8")
    return folder


def curve(done: Done) -> list[tuple[int, float]]:
    (trial,) = done.trials()
    return done.history(trial.info.run_id, "eval/loss")


def shown(done: Done) -> Any:
    return verb(done.folder, "show", done.document["sweep"], "--trial", "0000", "--json", within_s=300).document


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, float]]:
    folder = folder_with_code(tmp_path_factory.mktemp("undisturbed"))
    found = curve(run(folder, *SWEEP, "cluster.num_cpus=2", within_s=800))
    assert [step for step, _ in found] == [10, 20, 30, 40, 50, 60]
    return found


@pytest.mark.parametrize("when", ["stepping", "saving"])
def test_a_worker_that_receives_sigterm_lets_its_trial_save_and_go_on(
    when: str, tmp_path: Path, undisturbed: list[tuple[int, float]]
) -> None:
    arguments = (f"+model.arguments.seconds={SLOW_S}", f"+model.arguments.terminate={when}")
    done = run(folder_with_code(tmp_path), *SWEEP, *arguments, "cluster.num_cpus=2", within_s=800)
    assert (tmp_path / "sent").exists()
    (trial,) = done.document["trials"]
    assert (trial["state"], trial["attempts"]) == ("finished", 1), done.err
    assert curve(done) == undisturbed
    document = shown(done)
    (move,) = document["moves"]
    assert f"worker {1 if when == 'stepping' else 0} on " in move["reason"]
    assert "SIGTERM" in move["reason"]
    assert document["failed_attempts"] == []
    assert len(document["spans"]) == 2
    assert "saved its state, and continues on other workers" in done.err
    assert document["time_account"]["lost"] == pytest.approx(0, abs=1), "nothing was computed again"


def drain(nodes: RayNodes, node: str, process: subprocess.Popen[bytes]) -> None:
    """As a cloud's notice: the node is killed when its time is over."""
    command = [*RAY, "drain-node", "--address", nodes.address, "--node-id", node]
    command += [
        "--reason",
        "DRAIN_NODE_REASON_PREEMPTION",
        "--reason-message",
        "spot",
        "--deadline-remaining-seconds",
        "60",
    ]
    subprocess.run(command, check=True, env={**os.environ, **nodes.environment})


def end_container(nodes: RayNodes, node: str, process: subprocess.Popen[bytes]) -> None:
    """As Kubernetes ends a pod: SIGTERM to its first process, ``ray start --block``."""
    os.kill(process.pid, signal.SIGTERM)


def end_raylet(nodes: RayNodes, node: str, process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to Ray's own process, which ends its workers at once."""
    (raylet,) = (each for each in psutil.Process(process.pid).children(recursive=True) if each.name() == "raylet")
    raylet.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("take_away", [drain, end_container, end_raylet])
def test_a_trial_goes_on_elsewhere_when_its_node_is_taken_away(
    take_away: Callable[[RayNodes, str, subprocess.Popen[bytes]], None],
    nodes: RayNodes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: list[tuple[int, float]],
) -> None:
    folder_with_code(tmp_path)
    for name, value in nodes.environment.items():
        monkeypatch.setenv(name, value)
    nodes.start(num_cpus=0)
    taken = nodes.start(num_cpus=2)
    address = f"cluster.address={nodes.address}"
    slow = (f"+model.arguments.seconds={SLOW_S}", "+model.arguments.waits=true")
    sweep = start(tmp_path, "run", *SWEEP, *slow, address, "tracking.report=false", "--json")
    steps, node = reached(tmp_path, 23, sweep)
    nodes.start(num_cpus=2)
    began = time.monotonic()
    take_away(nodes, node, taken)
    (tmp_path / "taken").touch()
    done = ended(tmp_path, sweep, within_s=800)
    err = done.err
    print(f"{take_away.__name__} at step {steps}, the end {time.monotonic() - began:.1f} s later\n{err}")
    (trial,) = done.document["trials"]
    assert (trial["state"], trial["attempts"]) == ("finished", 1), err
    assert curve(done) == undisturbed
    document = shown(done)
    assert len(document["moves"]) == 1, document["moves"]
    assert document["failed_attempts"] == []
    assert reached(tmp_path, 1, None)[1] != node
    if take_away is end_raylet:
        assert "lost its work since its checkpoint of step" in err
    else:
        assert "leaves the cluster in" in document["moves"][0]["reason"]
        assert "saved its state, and continues on other workers" in err
        assert document["time_account"]["lost"] == pytest.approx(0, abs=1), "nothing was computed again"


def reached(folder: Path, step: int, sweep: subprocess.Popen[str] | None) -> tuple[int, str]:
    """Wait until worker 1 is at a step; returns its step and its node."""
    until = time.monotonic() + 600
    while True:
        if (file := folder / "steps").exists():
            steps, node = file.read_text().split()
            if int(steps) >= step:
                return int(steps), node
        assert sweep is None or sweep.poll() is None, sweep.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
