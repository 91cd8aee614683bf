"""Once workers have died, worker processes are started ahead, and the next group gets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import NO_PREFLIGHT, run

from sweeps.runtime.spare_processes import ProcessOrigin, SpareProcesses

FALLS = """
import json
import os
import signal
import time

import psutil
import ray.train

from sweeps.runtime.spare_processes import origin


def train(config):
    rank = ray.train.get_context().get_world_rank()
    died = len([name for name in os.listdir(config["folder"]) if name.startswith(f"{rank}-")])
    ray.train.report({"value": 1.0})
    time.sleep(1 if died == 0 else 14 if died == 1 else 0)  # a spare process needs some seconds
    with open(f"{config['folder']}/{rank}-{died}.json", "w") as file:
        told = {"began": psutil.Process().create_time(), "now": time.time(), "was_spare": origin().was_spare}
        json.dump({**told, "threads": __import__("torch").get_num_threads()}, file)
    ray.train.report({"value": 2.0})
    if died < 2:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def group(*origins: tuple[str, bool], runtime_env: str = "{}") -> list[ProcessOrigin]:
    return [ProcessOrigin((node, runtime_env), was_spare) for node, was_spare in origins]


def test_nothing_is_started_ahead_until_it_is_wanted() -> None:
    spares = SpareProcesses()
    assert spares.replace(group(("a", False), ("a", False)), wanted=False) == {}
    assert spares.replace(group(("a", False), ("a", False), ("b", False)), wanted=True) == {
        ("a", "{}"): 2,
        ("b", "{}"): 1,
    }


def test_spare_processes_that_a_group_has_used_are_replaced_and_others_are_kept() -> None:
    spares = SpareProcesses()
    spares.replace(group(("a", False), ("a", False)), wanted=True)
    assert spares.replace(group(("a", True), ("a", True)), wanted=True) == {("a", "{}"): 2}
    assert spares.replace(group(("b", False)), wanted=False) == {("b", "{}"): 1}
    assert spares.replace(group(("a", True)), wanted=False) == {}, "one is left, as many as the group has workers"


def test_spare_processes_that_ray_did_not_use_have_ended_and_are_started_again() -> None:
    spares = SpareProcesses()
    spares.replace(group(("a", False), ("a", False)), wanted=True)
    assert spares.replace(group(("a", True), ("a", False)), wanted=True) == {("a", "{}"): 2}


def test_a_group_gets_no_spare_processes_of_another_environment() -> None:
    spares = SpareProcesses()
    spares.replace(group(("a", False)), wanted=True)
    other = group(("a", False), runtime_env='{"env_vars": {"A": "1"}}')
    assert spares.replace(other, wanted=True) == {("a", '{"env_vars": {"A": "1"}}'): 1}


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_the_second_time_that_its_workers_die_a_trial_goes_on_in_processes_that_were_there_before(
    tmp_path: Path,
) -> None:
    (tmp_path / "falls.py").write_text(FALLS)
    told = tmp_path / "told"
    told.mkdir()
    done = run(
        tmp_path,
        *("conf=ray_train_function", "task._target_=falls.train", f"task.arguments={{folder: {told}}}"),
        *("task.metrics=[value]", "~space", "search.num_trials=1", "search.metric=value", "search.max_retries=5"),
        *("scaling.num_workers=2", "scaling.isolation=warm", "cluster.num_cpus=2", NO_PREFLIGHT),
    )
    assert done.status == 0, done.err
    for rank in range(2):
        first, second, third = (json.loads((told / f"{rank}-{died}.json").read_text()) for died in range(3))
        assert not first["was_spare"]
        assert third["was_spare"]
        assert third["began"] < second["now"]
        assert third["threads"] == first["threads"]
