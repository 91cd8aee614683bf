"""Sweeps on clusters whose nodes join, leave, break, or are shared with other sweeps."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from processes import run_python
from ray_nodes import RayNodes
from sweep_on_nodes import RunningSweep

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


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


SLOW_TO_START = """
import pathlib, time
if "worker.py" in pathlib.Path("/proc/self/cmdline").read_text():  # of Ray's workers alone
    until = time.monotonic() + 400
    while not pathlib.Path({go!r}).exists() and time.monotonic() < until:
        time.sleep(0.2)
"""


def test_slots_start_side_by_side_and_a_slow_node_does_not_hold_the_others(nodes: RayNodes, tmp_path: Path) -> None:
    late, go = tmp_path / "late", tmp_path / "go"
    late.mkdir()
    (late / "sitecustomize.py").write_text(SLOW_TO_START.format(go=str(go)))
    slow = {
        "NODE": "1",
        "PYTHONPATH": f"{late}:{os.environ.get('PYTHONPATH', '')}",
        # Ray gives up a process that has not begun within 60 s, and starts no other one for the same worker.
        "RAY_worker_register_timeout_seconds": "600",
    }
    nodes.start(num_cpus=2, environment={"NODE": "0"})
    nodes.start(num_cpus=1, environment=slow)
    sweep = RunningSweep(tmp_path, nodes, "search.num_trials=3", "task.arguments.seconds=3")
    sweep.wait_for(r"\[2/3\].* finished", within_s=360)
    go.touch()
    document = sweep.finish()
    print(sweep.text)
    assert [trial["attempts"] for trial in document["trials"]] == [1, 1, 1]
    reports = sweep.reports_of_trials()
    (held,) = (trial for trial, each in reports.items() if {node for _, node in each} == {1})
    started = {each: sweep.wait_for(f"trial {each} started") for each in ("0000", "0001", "0002")}
    ended = {each: sweep.wait_for(rf"trial {each} finished") for each in started}
    others = started.keys() - {held}
    assert max(started[each] for each in others) < min(ended[each] for each in others), "not one after the other"
    last_of_others = max(time for each in others for time, _ in reports[each])
    assert last_of_others < reports[held][0][0], "nobody waits for the slow node"


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
    done = run_python("-c", probe.format(nodes.address), environment=nodes.environment)
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
    print(sweep.text)
    assert document["counts"]["finished"] == 6
    assert sorted(trial["attempts"] for trial in document["trials"]) == [1, 1, 1, 1, 1, 2]
    again = next(at for at, line in sweep.events if "attempt 2" in line)
    print(f"the second attempt was started {again - left_out:.1f} s after the node had been left out")
