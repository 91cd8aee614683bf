"""Once workers have died, worker processes are started ahead, and the next group gets them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest
from running import NO_PREFLIGHT, run

from sweeps.compat import ray_processes
from sweeps.runtime import spare_processes
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
    assert spares.replace("slot", group(("a", False), ("a", False)), wanted=False) == {}
    assert spares.replace("slot", group(("a", False), ("a", False), ("b", False)), wanted=True) == {
        ("a", "{}"): 2,
        ("b", "{}"): 1,
    }


def test_spare_processes_that_a_group_has_used_are_replaced_and_others_are_kept() -> None:
    spares = SpareProcesses()
    spares.replace("slot", group(("a", False), ("a", False)), wanted=True)
    assert spares.replace("slot", group(("a", True), ("a", True)), wanted=True) == {("a", "{}"): 2}
    assert spares.replace("slot", group(("b", False)), wanted=False) == {("b", "{}"): 1}
    assert spares.replace("slot", group(("a", True)), wanted=False) == {}, (
        "one is left, as many as the group has workers"
    )


def test_spare_processes_that_ray_did_not_use_have_ended_and_are_started_again() -> None:
    spares = SpareProcesses()
    spares.replace("slot", group(("a", False), ("a", False)), wanted=True)
    assert spares.replace("slot", group(("a", True), ("a", False)), wanted=True) == {("a", "{}"): 2}


def test_a_group_gets_no_spare_processes_of_another_environment() -> None:
    spares = SpareProcesses()
    spares.replace("slot", group(("a", False)), wanted=True)
    other = group(("a", False), runtime_env='{"env_vars": {"A": "1"}}')
    assert spares.replace("slot", other, wanted=True) == {("a", '{"env_vars": {"A": "1"}}'): 1}


def test_a_group_that_is_to_grow_gets_as_many_as_it_will_have_workers_and_they_are_not_replaced() -> None:
    spares = SpareProcesses()
    assert spares.prepare("slot", 4, {}) == {}, "its processes are not known"
    spares.replace("slot", group(("a", False), ("b", False)), wanted=False)
    assert spares.prepare("slot", 4, {}) == {("a", "{}"): 2, ("b", "{}"): 2}
    assert spares.prepare("slot", 4, {}) == {}
    grown = group(("a", True), ("a", True), ("b", True), ("b", True))
    assert spares.replace("larger", grown, wanted=False) == {}
    spares.forget("larger")
    assert spares.prepare("larger", 8, {}) == {}
    assert spares.prepare("slot", 2, {}) == {("a", "{}"): 1, ("b", "{}"): 1}


def test_a_group_that_is_to_grow_onto_another_node_gets_processes_there() -> None:
    spares = SpareProcesses()
    spares.replace("slot", group(("a", False), ("a", False)), wanted=False)
    assert spares.prepare("slot", 4, {"b": 2}) == {("a", "{}"): 2, ("b", "{}"): 2}
    spares.replace("other", group(("c", False)), wanted=False)
    assert spares.prepare("other", 4, {"d": 8, "c": 1}) == {("c", "{}"): 2, ("d", "{}"): 2}, "on its own node first"


def test_processes_that_a_node_drops_while_it_starts_others_are_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: Counter[str] = Counter({"a": 3})
    asked: list[tuple[int, str]] = []

    def start(number: int, node_id: str, _: str) -> None:
        asked.append((number, node_id))
        started[node_id] += min(number, 2)

    monkeypatch.setattr(ray_processes, "start_idle_processes", start)
    monkeypatch.setattr(ray_processes, "told", lambda _, node_id: started[node_id])
    monkeypatch.setattr(spare_processes, "STARTED_WITHIN_S", 0.3)
    spare_processes.start_spares({("a", "{}"): 5, ("b", "{}"): 1})
    assert asked == [(5, "a"), (1, "b"), (3, "a"), (1, "a")]


CHECKED = """
import importlib

from sweeps.compat.cuda_driver import initialized_gpus
from sweeps.runtime.spare_processes import IMPORTS, _import

for name in IMPORTS:
    _import(name)
assert initialized_gpus() is None
import torch

torch.cuda.init()
assert initialized_gpus() == torch.cuda.device_count()
"""


@pytest.mark.gpu
def test_the_imports_of_a_spare_process_leave_the_gpus_alone() -> None:
    subprocess.run([sys.executable, "-c", CHECKED], check=True)


@pytest.mark.parametrize(
    ("visible", "seen", "is_used"),
    [
        *(("0,1", 2, True), ("", 0, True), (None, 8, True), ("3", None, True)),
        *(("0,1", 8, False), ("", 8, False), ("3", 0, False)),
    ],
)
def test_a_process_that_sees_other_gpus_than_were_reserved_is_not_used(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, seen: int | None, is_used: bool
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(spare_processes, "initialized_gpus", lambda: seen)
    spare_processes.take_resources()  # it was not started ahead
    monkeypatch.setattr(spare_processes._Idle, "was_spare", True)
    refused = pytest.raises(RuntimeError, match=f"sees {seen} GPUs instead of {visible or 'none'}")
    with nullcontext() if is_used else refused:
        spare_processes.take_resources()


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
