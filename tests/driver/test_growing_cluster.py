"""Sweeps on a cluster that begins too small and grows by Ray's autoscaler, to nodes that are processes here."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from composing import composed_digits
from ray.util import get_node_ip_address
from ray_nodes import RayNodes
from recording import free_port
from running import ended, start, verb

from sweeps.driver import waiting_for_nodes
from sweeps.driver.early_end import Shutdown
from sweeps.driver.startup import place
from sweeps.driver.sweep_state import SweepState
from sweeps.driver.trial_status import TrialStatus
from sweeps.driver.waiting_for_nodes import WaitingForNodes
from sweeps.errors import DoesNotFit
from sweeps.plan.plan import make_plan
from sweeps.runtime.cluster import Connection
from sweeps.runtime.trials_at_once import Fit

PROVIDER = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
"""Provider of nodes that are processes of this machine. ``ray.cluster_utils.AutoscalingCluster`` would end every Ray
process of the machine when it starts, and reads a file that Ray's package does not have."""
HEAD_ID = "f" * 51 + "00000"
"""Id of the head node that the provider expects."""


class Told:
    """A view that remembers what it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def starting(self, text: str) -> None:
        self.lines.append(text)

    def event(self, state: SweepState, text: str) -> None:
        self.lines.append(text)

    def changed(self, state: SweepState) -> None:
        pass


GROWING = ("conf=digits", "cluster=auto", "cluster.node_types={gpu: {resources: {CPU: 8, GPU: 2}, max_workers: 3}}")


def test_a_sweep_is_planned_for_the_largest_cluster_that_the_autoscaler_may_make() -> None:
    view, small = Told(), Connection([{"CPU": 4.0}], None)
    plan = make_plan([*GROWING, "search.num_trials=10", "scaling.num_workers=1"], [], "grown", "run")
    trials = place(plan, view, small)
    assert (trials.concurrent, trials.use_gpu, trials.may_grow) == (6, True, True)
    assert "its autoscaler may add 3 x gpu (8 CPU, 2 GPU)" in view.lines[0]
    with pytest.raises(DoesNotFit, match=r"can place 6 workers .* its autoscaler may add: 3 x gpu"):
        place(make_plan([*GROWING, "scaling.num_workers=8"], [], "grown", "run"), view, small)


def test_a_sweep_that_no_longer_fits_is_told_what_a_resume_can_do() -> None:
    plan = make_plan(["conf=digits", "cluster.num_cpus=4", "scaling.num_workers=4"], [], "large", "run")
    smaller = Connection([{"CPU": 2.0}], None)
    with pytest.raises(DoesNotFit, match=r"can place 2 workers .*: resume large where it fits, .*warm_start=\[large\]"):
        place(plan, Told(), smaller, resumed=True)


WAIT = (
    " wait until the cluster's autoscaler has added nodes: each needs 1 worker of 1 CPU, 1 GPU; the cluster has 4 CPU, "
    "0 GPU"
)


def test_the_trials_that_have_no_place_are_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    view, now = Told(), time.time()
    trials = Fit(use_gpu=True, per_worker={"CPU": 1.0, "GPU": 1.0}, num_workers=1, concurrent=3, may_grow=True)
    state = SweepState("s", composed_digits(), view, 3, Shutdown(None), fit=trials)
    for trial, assigned in (("0000", now - 60), ("0001", now - 40), ("0002", now - 20), ("0003", now)):
        state.trials[trial] = TrialStatus(trial, {}, "running", assigned=assigned)
    monkeypatch.setattr(waiting_for_nodes, "EVERY_S", 0.0)
    nodes = [{"CPU": 4.0}]
    monkeypatch.setattr(waiting_for_nodes, "alive_nodes", lambda: nodes)
    monkeypatch.setattr(waiting_for_nodes, "groups_without_nodes", lambda: 2)
    watch = WaitingForNodes(state)
    watch.look()
    watch.look()
    assert view.lines == ["trials 0001, 0002" + WAIT]
    nodes.append({"CPU": 8.0, "GPU": 2.0})
    monkeypatch.setattr(waiting_for_nodes, "groups_without_nodes", lambda: 0)
    watch.look()
    assert view.lines[1:] == ["the cluster has grown to 2 nodes: 12 CPU, 2 GPU"]


@pytest.fixture(params=["v1", "v2"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayNodes]:
    """A head with one CPU, to which each generation of the autoscaler can add two nodes of 2 CPUs and a GPU."""
    port, is_v2 = free_port(), request.param == "v2"
    address = get_node_ip_address()  # type: ignore[no-untyped-call]
    provider = {
        "type": "external",
        "module": PROVIDER,
        "gcs_address": f"{address}:{port}",
        "head_node_id": HEAD_ID,
        "launch_multiple": is_v2,
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
    }
    kinds = {
        "ray.head.default": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0},
        "gpu": {
            "resources": {"CPU": 2, "GPU": 1, "object_store_memory": 100_000_000},
            "node_config": {},
            "max_workers": 2,
        },
    }
    config = {
        "cluster_name": "growing",
        "max_workers": 2,
        "provider": provider,
        "available_node_types": kinds,
        "head_node_type": "ray.head.default",
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 5,
    }
    empty = (
        *("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands"),
        *("head_start_ray_commands", "worker_start_ray_commands", "cluster_synced_files"),
    )
    config |= {each: [] for each in empty} | {"auth": {}, "docker": {}, "file_mounts": {}}
    file = tmp_path / "autoscaler.yaml"
    file.write_text(json.dumps(config))
    nodes = RayNodes(tmp_path)
    of_v2 = {"RAY_enable_autoscaler_v2": "1"} if is_v2 else {}
    head = nodes.start(
        num_cpus=1,
        environment={
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "RAY_FAKE_CLUSTER": "1",
            "RAY_CLOUD_INSTANCE_ID": HEAD_ID,
            "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID,
            **of_v2,
        },
        options=[f"--port={port}", f"--autoscaling-config={file}"],
    )
    for name, value in nodes.environment.items():
        monkeypatch.setenv(name, value)
    yield nodes
    added = psutil.Process(head.pid).children(recursive=True)
    nodes.stop()
    for process in psutil.wait_procs(added, 1)[1]:  # the provider's nodes are no children of `ray start`
        process.kill()


def until(sweep: subprocess.Popen[str], text: str, within_s: float = 240) -> str:
    """Text that a sweep has printed up to one that a regular expression describes."""
    assert sweep.stderr is not None
    seen, ends = "", time.monotonic() + within_s
    while re.search(text, seen) is None:
        assert time.monotonic() < ends, f"no {text!r} in:\n{seen}"
        line = sweep.stderr.readline()
        assert line, f"the sweep has ended without {text!r}:\n{seen}"
        seen += line
    return seen


def until_nodes_have_come(sweep: subprocess.Popen[str]) -> str:
    """Text that a sweep has printed up to the news of a node. It names the trials that wait, unless the
    autoscaler was so quick that both nodes were there before the first trial had waited for long enough."""
    one = r"(\d nodes? joined: 2 trials at once|the cluster has grown to [23] nodes: \d CPU, [12] GPU)"
    both = r"(2 nodes joined|grown to 3 nodes)"
    said = until(sweep, f"{one}(.|\n)*{one}|{both}|trials? 000[01].* until the cluster's autoscaler has added nodes")
    if "autoscaler has added nodes" in said and re.search(one, said) is None:
        said += until(sweep, one)
    return said


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_trials_wait_for_nodes_and_say_for_what_and_run_when_they_have_come(cluster: RayNodes, tmp_path: Path) -> None:
    sweep = start(
        tmp_path,
        *("run", "conf=digits", f"cluster.address={cluster.address}", "search.num_trials=4", "train.max_steps=20"),
        *("scaling.num_workers=1", "scaling.use_gpu=false", "scaling.resources_per_worker.CPU=2", "--json"),
    )
    said = until_nodes_have_come(sweep)
    assert "the cluster has 1 CPU, 0 GPU on 1 node; its autoscaler may add 2 x gpu (2 CPU, 1 GPU)" in said
    named = "autoscaler has added nodes" in said
    assert ("each needs 1 worker of 2 CPU; the cluster has" in said) is named
    document = ended(tmp_path, sweep, within_s=240).document
    assert document["counts"]["finished"] + document["counts"]["pruned"] == 4
    assert {trial["attempts"] for trial in document["trials"]} == {1}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_trials_that_want_gpus_wait_for_them_and_can_be_interrupted(cluster: RayNodes, tmp_path: Path) -> None:
    run = ("run", "conf=digits", f"cluster.address={cluster.address}", "scaling.use_gpu=true", "search.num_trials=2")
    err = verb(tmp_path, *run, "scaling.num_workers=4", status=2, within_s=120).err
    assert "the cluster can place 2 workers of 1 CPU, 1 GPU" in err
    assert "this counts the nodes that its autoscaler may add: 2 x gpu (2 CPU, 1 GPU)" in err
    sweep = start(tmp_path, *run, "scaling.num_workers=1", "--name=gpus")
    until_nodes_have_come(sweep)
    sweep.send_signal(signal.SIGINT)
    ended(tmp_path, sweep, status=130, within_s=120)
