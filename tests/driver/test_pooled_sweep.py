"""A sweep on a cluster whose nodes differ."""

from __future__ import annotations

import json
import os
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
import os, time
import ray.train

def train(config):
    steps, seconds = config["steps"], config["seconds"]
    node = int(os.environ["NODE"])
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
  arguments: {steps: 5, seconds: 5, noise: 0.5}
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
