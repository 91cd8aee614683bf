"""Sweeps on clusters whose nodes join, leave, break, or are shared with other sweeps."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from ray_nodes import RayNodes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TRAIN = """
import os, signal, subprocess, time
from pathlib import Path
import ray.train

def train(config):
    steps, seconds, breaks = config["steps"], config["seconds"], config["breaks"]
    node = int(os.environ["NODE"])
    if breaks and node == 1:
        subprocess.run(["mount", "-t", "tmpfs", "none", breaks], check=True)
        os.kill(os.getpid(), signal.SIGKILL)
    for step in range(steps):
        time.sleep(seconds / steps)
        ray.train.report({"loss": config["noise"] / (step + 1), "node": node})
"""
CONF = """
defaults:
  - task: function
  - search: random
  - scaling: single_worker
  - checkpoint: last
  - tracking: mlflow
  - cluster: ray
  - _self_
name: waits
seed: 0
output_dir: outputs
task:
  _target_: waits.train
  arguments: {steps: 5, seconds: 5, noise: 0.5, breaks: ""}
  metrics: [loss, node]
scaling: {isolation: warm, use_gpu: false}
space:
  task.arguments.noise: {type: float, low: 0.0, high: 1.0}
search: {metric: loss, mode: min, num_trials: 4}
tracking: {report: false}
"""


class RunningSweep:
    """A sweep in its own process, whose events are read as they come."""

    def __init__(self, folder: Path, nodes: RayNodes, *overrides: str, name: str = "sweep", **environment: str):
        self.folder, self.name = folder, name
        self.events: list[tuple[float, str]] = []
        """Times and lines."""
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "sweeps", "run", "conf=waits.yaml", "--name", name, "--json"),
                *(f"cluster.address={nodes.address}", *overrides),
            ],
            cwd=folder,
            env={**os.environ, **nodes.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr:
            for line in self.process.stderr:
                self.events.append((time.monotonic(), line.rstrip()))

    @property
    def text(self) -> str:
        return "\n".join(line for _, line in self.events)

    def wait_for(self, pattern: str, within_s: float = 180.0) -> float:
        """Wait for an event; returns its time."""
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            for at, line in [*self.events]:
                if re.search(pattern, line):
                    return at
            assert self.process.poll() is None, self.text
            time.sleep(0.1)
        pytest.fail(f"no event {pattern!r} within {within_s} s:\n{self.text}")

    def finish(self) -> dict[str, Any]:
        """The sweep's document, at its end."""
        assert self.process.stdout is not None
        with self.process.stdout:
            out = self.process.stdout.read()
        assert self.process.wait(300) == 0, self.text
        self._reader.join(10)
        document: dict[str, Any] = json.loads(out)
        return document

    def nodes_of_trials(self) -> dict[str, set[int]]:
        """Numbers of the nodes on which each trial has reported."""
        client = MlflowClient(f"sqlite:///{self.folder}/mlflow.db")
        (experiment,) = client.search_experiments(filter_string="name = 'waits'")
        found = {}
        for run in client.search_runs([experiment.experiment_id]):
            tags = run.data.tags
            if tags.get("sweeps.kind") == "trial" and tags["sweeps.sweep"] == self.name:
                history = client.get_metric_history(run.info.run_id, "node")
                found[tags["sweeps.trial"]] = {int(each.value) for each in history}
        return found


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[RayNodes]:
    (tmp_path / "waits.py").write_text(TRAIN)
    (tmp_path / "waits.yaml").write_text(CONF)
    nodes = RayNodes(tmp_path)
    yield nodes
    nodes.stop()


def test_a_node_that_joins_is_used_and_one_that_leaves_costs_only_its_own_trial(
    nodes: RayNodes, tmp_path: Path
) -> None:
    nodes.start(num_cpus=1, environment={"NODE": "0"})
    sweep = RunningSweep(tmp_path, nodes, "task.arguments.seconds=40", "search.num_trials=3")
    sweep.wait_for("trial 0000 started")
    leaves = nodes.start(num_cpus=1, environment={"NODE": "1"})
    joined = time.monotonic()
    sweep.wait_for("1 node joined: 2 trials at once")
    used = sweep.wait_for("trial 0001 started")
    print(f"a node was used {used - joined:.1f} s after it had joined")
    assert "trial 0000 finished" not in sweep.text, "it did not wait for a place of another trial"
    until = time.monotonic() + 120
    while 1 not in {node for each in sweep.nodes_of_trials().values() for node in each}:
        assert time.monotonic() < until, sweep.text
        time.sleep(0.5)
    nodes.kill(leaves)
    left = time.monotonic()
    seen = sweep.wait_for("1 node left: 1 trial at once")
    print(f"the loss of a node was seen after {seen - left:.1f} s")
    document = sweep.finish()
    print(sweep.text)
    assert document["counts"]["finished"] == 3
    assert sorted(trial["attempts"] for trial in document["trials"]) == [1, 1, 2]


def test_two_sweeps_share_a_cluster_and_neither_holds_half_a_trial(nodes: RayNodes, tmp_path: Path) -> None:
    nodes.start(num_cpus=3, environment={"NODE": "0"})
    trials = ("task.arguments.steps=10", "task.arguments.seconds=20", "search.num_trials=2", "scaling.num_workers=2")
    impatient = {"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "5"}
    first = RunningSweep(tmp_path, nodes, *trials, name="first", **impatient)
    first.wait_for("trial 0000 started")
    second = RunningSweep(tmp_path, nodes, *trials, name="second", **impatient)
    waiting, other = second, first
    until = time.monotonic() + 120
    while "waits: others use the resources" not in second.text + first.text:
        assert time.monotonic() < until, second.text + first.text
        time.sleep(0.2)
    if "waits: others" in first.text:
        waiting, other = first, second
    probe = (
        "import ray; ray.init(address='{0}', log_to_driver=False); print('FREE', ray.available_resources().get('CPU'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe.format(nodes.address)],
        env={**os.environ, **nodes.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "FREE 1.0" in done.stdout, "the trial that waits reserves nothing"
    for sweep in (other, waiting):
        document = sweep.finish()
        assert document["counts"]["finished"] == 2
        assert [trial["attempts"] for trial in document["trials"]] == [1, 1], "to wait for others is no failure"


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="mounts need root")
def test_a_node_that_breaks_is_checked_after_the_failure_and_left_out(nodes: RayNodes, tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    nodes.start(num_cpus=1, environment={"NODE": "0"})
    nodes.start(num_cpus=1, environment={"NODE": "1"}, before=["unshare", "--mount", "sh", "-c", 'exec "$@"', "node"])
    arguments = f"task.arguments.breaks={outputs}"
    sweep = RunningSweep(tmp_path, nodes, arguments, "search.num_trials=6", "cluster.check_nodes=true")
    sweep.wait_for("2 at once")
    left_out = sweep.wait_for(r"leaves out .* does not share output_dir.*; 1 trials? at once", within_s=240)
    document = sweep.finish()
    assert document["counts"]["finished"] == 6
    assert sorted(trial["attempts"] for trial in document["trials"]) == [1, 1, 1, 1, 1, 2]
    again = next(at for at, line in sweep.events if "attempt 2" in line)
    print(f"the second attempt was started {again - left_out:.1f} s after the node had been left out")
