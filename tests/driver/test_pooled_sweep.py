"""A sweep on a cluster whose nodes differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from processes import run_python
from ray_nodes import RayNodes
from sweep_on_nodes import RunningSweep

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


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


NETWORK = """
import os
from pathlib import Path
from torch import nn

class Net(nn.Module):
    def __init__(self, folder):
        super().__init__()
        self.folder, self.layers = Path(folder), nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    def forward(self, images):
        with (self.folder / ("trained" if self.training else "evaluated")).open("a") as file:
            file.write(os.environ["NODE"])
        return self.layers(images)
"""


def test_trials_that_train_in_one_pool_are_evaluated_in_another(nodes: RayNodes, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NETWORK)
    nodes.start(num_cpus=2, environment={"NODE": "0"}, options=["--labels=kind=train"])
    nodes.start(num_cpus=1, environment={"NODE": "1"}, options=["--labels=kind=evaluate"])
    pools = "{train: {labels: {kind: train}, per_cpu_hour: 1}, cpu: {labels: {kind: evaluate}, per_cpu_hour: 1000}}"
    done = run_python(
        *("-m", "sweeps", "run", "conf=digits", "--name", "apart", "--json"),
        *(f"cluster.address={nodes.address}", f"scaling.pools={pools}", "scaling.evaluation_pool=cpu"),
        *("model=custom", "model._target_=net.Net", f"+model.arguments.folder={tmp_path}"),
        *("space=none", "train.lr=tag(log, interval(0.001, 0.1))"),
        *("search.num_trials=3", "train.max_steps=66", "preflight.timeout_s=0"),
        folder=tmp_path,
        environment={**nodes.environment, "NODE": "driver"},
    )
    document = json.loads(done.stdout)
    assert document["counts"]["failed"] == 0
    assert document["counts"]["finished"] >= 1
    assert document["best"]["value"] > 0.2
    assert set((tmp_path / "trained").read_text()) == {"0"}
    assert set((tmp_path / "evaluated").read_text()) == {"1"}
    best = shown(tmp_path, nodes, "apart", document["best"]["trial"])
    assert best["pool"] == "train"
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    metrics = client.get_run(document["best"]["run_id"]).data.metrics
    assert metrics["system/cost"] > 1000 * metrics["system/evaluation_s"] / 3600 > 0


def shown(folder: Path, nodes: RayNodes, sweep: str, trial: str) -> dict[str, Any]:
    command = ("-m", "sweeps", "show", sweep, "--trial", trial, "--json")
    done = run_python(*command, folder=folder, environment=nodes.environment)
    document: dict[str, Any] = json.loads(done.stdout)
    return document
