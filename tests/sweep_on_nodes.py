"""A sweep on a cluster of several nodes, in a process of its own; its trials wait, and report the node they run on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from ray_nodes import RayNodes

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

    def __init__(
        self,
        folder: Path,
        nodes: RayNodes,
        *overrides: str,
        name: str = "sweep",
        conf: str = "waits.yaml",
        **environment: str,
    ):
        self.folder, self.name = folder, name
        (folder / "waits.py").write_text(TRAIN)
        (folder / "waits.yaml").write_text(CONF)
        self.events: list[tuple[float, str]] = []
        """Times and lines."""
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "sweeps", "run", f"conf={conf}", "--name", name, "--json"),
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
        raise AssertionError(f"no event {pattern!r} within {within_s} s:\n{self.text}")

    def finish(self, within_s: float = 300.0) -> dict[str, Any]:
        """The sweep's document, at its end."""
        try:
            self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"it has not ended within {within_s} s:\n{self.text}") from None
        self._reader.join(10)
        assert self.process.stdout is not None
        with self.process.stdout:
            output = self.process.stdout.read()
        assert self.process.returncode == 0, self.text
        document: dict[str, Any] = json.loads(output)
        return document

    def nodes_of_trials(self) -> dict[str, set[int]]:
        """Numbers of the nodes on which each trial has reported."""
        return {trial: {node for _, node in reports} for trial, reports in self.reports_of_trials().items()}

    def reports_of_trials(self) -> dict[str, list[tuple[float, int]]]:
        """Unix time of each trial's reports, and the number of the node from which they came."""
        client = MlflowClient(f"sqlite:///{self.folder}/mlflow.db")
        (experiment,) = client.search_experiments(filter_string="name = 'waits'")
        found = {}
        for run in client.search_runs([experiment.experiment_id]):
            tags = run.data.tags
            if tags.get("sweeps.kind") == "trial" and tags["sweeps.sweep"] == self.name:
                history = client.get_metric_history(run.info.run_id, "node")
                found[tags["sweeps.trial"]] = sorted((each.timestamp / 1000, int(each.value)) for each in history)
        return found
