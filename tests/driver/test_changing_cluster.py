"""Sweeps on clusters whose nodes join, start slowly, break, leave, differ, or are shared with other sweeps."""

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
SLOW_START_S = 20
SLOW = f"""
import sys, time
if any("default_worker" in each for each in sys.orig_argv):
    time.sleep({SLOW_START_S})
"""
"""Module that each Python process imports first: it delays the workers of one node."""
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


def test_a_node_that_joins_is_used_a_slow_one_holds_nobody_and_one_that_leaves_costs_its_own_trial(
    nodes: RayNodes, tmp_path: Path
) -> None:
    nodes.start(num_cpus=1, environment={"NODE": "0"})
    length = ("task.arguments.seconds=5", "search.num_trials=14")
    sweep = RunningSweep(tmp_path, nodes, *length)
    sweep.wait_for("trial 0000 finished")
    assert "1 at once" in sweep.text

    delay = tmp_path / "delay"
    delay.mkdir()
    (delay / "sitecustomize.py").write_text(SLOW)
    path = f"{delay}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    started = sum("started" in line for _, line in sweep.events)
    nodes.start(num_cpus=1, environment={"NODE": "1", "PYTHONPATH": path})
    joined = time.monotonic()
    sweep.wait_for("1 node joined: 2 trials at once")
    used = sweep.wait_for(f"trial {started:04} started")
    print(f"a slow node was used {used - joined:.1f} s after it had joined")
    assert used - joined < 30

    leaves = nodes.start(num_cpus=1, environment={"NODE": "2"})
    sweep.wait_for("1 node joined: 3 trials at once")
    until = time.monotonic() + 120
    while 2 not in {node for each in sweep.nodes_of_trials().values() for node in each}:
        assert time.monotonic() < until, sweep.text
        time.sleep(0.5)
    nodes.kill(leaves)
    left = time.monotonic()
    seen = sweep.wait_for("1 node left: 2 trials at once")
    print(f"the loss of a node was seen after {seen - left:.1f} s")

    document = sweep.finish()
    print(sweep.text)
    assert document["counts"]["finished"] == 14
    attempts = [trial["attempts"] for trial in document["trials"]]
    assert sorted(attempts)[:-1] == [1] * 13, "only the trial on the node that left was tried again"
    on = sweep.nodes_of_trials()
    slow = [trial for trial, where in on.items() if where == {1}]
    assert slow, on
    began = next(at for at, line in sweep.events if f"trial {min(slow)} started" in line)
    ended = next(at for at, line in sweep.events if f"trial {min(slow)} finished" in line)
    meanwhile = [line for at, line in sweep.events if began < at < ended and re.search(r"trial \d+ finished", line)]
    print(f"{len(meanwhile)} trials finished while one waited for its slow node")
    assert ended - began > SLOW_START_S
    assert len(meanwhile) >= 3


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


POOLS = (
    "scaling.pools={fast: {labels: {kind: fast}, per_cpu_hour: 40}, cheap: {labels: {kind: cheap}, per_cpu_hour: 10}}"
)


def test_trials_run_in_the_pool_that_suits_them_and_the_search_is_told_what_they_cost(
    nodes: RayNodes, tmp_path: Path
) -> None:
    nodes.start(num_cpus=1, environment={"NODE": "0"}, options=["--labels=kind=fast"])
    nodes.start(num_cpus=1, environment={"NODE": "1"}, options=["--labels=kind=cheap"])
    objectives = ("search.metric=[loss,system/cost]", "search.mode=[min,min]")
    sweep = RunningSweep(tmp_path, nodes, POOLS, *objectives, "task.arguments.seconds=4", "search.num_trials=6")
    document = sweep.finish()
    assert document["counts"]["finished"] == 6
    records = [shown(tmp_path, nodes, "sweep", trial["trial"]) for trial in document["trials"]]
    on = sweep.nodes_of_trials()
    assert {each["pool"] for each in records} == {"fast", "cheap"}
    assert all(on[each["trial"]] == {{"fast": 0, "cheap": 1}[each["pool"]]} for each in records)
    assert records[0]["pool"] == "cheap", "the cheapest with room"
    for each in records:
        cost, price = each["value"][1], {"fast": 40, "cheap": 10}[each["pool"]]
        assert price * 0.5 / 3600 < cost < price * 30 / 3600, each
    refused = RunningSweep(tmp_path, nodes, POOLS.replace("kind: fast", "kind: fastest"), name="refused")
    with pytest.raises(AssertionError, match=r"scaling\.pools\.fast: no node of the cluster has kind=fastest"):
        refused.finish()
    assert refused.process.returncode == 2
    searched = ("scaling.pool=choice(fast, cheap)", "task.arguments.noise=0.5", "search.num_trials=4")
    sweep = RunningSweep(tmp_path, nodes, POOLS, *searched, "task.arguments.seconds=2", "search=grid", name="searched")
    document = sweep.finish()
    on = sweep.nodes_of_trials()
    assert len(document["trials"]) == 2
    for trial in document["trials"]:
        assert on[trial["trial"]] == {{"fast": 0, "cheap": 1}[trial["params"]["scaling.pool"]]}


def shown(folder: Path, nodes: RayNodes, sweep: str, trial: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "sweeps", "show", sweep, "--trial", trial, "--json"],
        cwd=folder,
        env={**os.environ, **nodes.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    document: dict[str, Any] = json.loads(done.stdout)
    return document


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
