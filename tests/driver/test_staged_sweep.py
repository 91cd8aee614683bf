"""Sweeps whose search goes through cheaper stages before its own trials."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from continuing import wait_for
from running import Done, ended, own_function, run, start, verb

TRAIN = """
import time
import ray.train
import torch
import torch.distributed as dist

def train(config):
    x, length = config["x"], config["length"]
    misleads = config["misleads"] if length < 8 else 0.0
    loss = torch.tensor(abs(x - 40) * (1.0 - misleads) + misleads * abs(x - 90))
    dist.all_reduce(loss)  # both workers have the same
    if config["fails_below"] > length:
        raise RuntimeError("too short")
    for step in range(1, length + 1):
        time.sleep(config["wait_s"])
        ray.train.report({"loss": float(loss) / 2 + 1 / step})
"""
TWO_STAGES = (
    "search.stages=[{overrides: ['task.arguments.length=1'], num_trials: 8, keep: 4}, "
    "{overrides: ['task.arguments.length=3'], num_trials: 5, keep: 3}]"
)


def prepare(folder: Path, *more: str, stages: str = TWO_STAGES) -> tuple[str, ...]:
    """A sweep whose stages have shorter trials, which order the points like the search or otherwise."""
    folder.mkdir(exist_ok=True)
    return (
        *own_function(folder, TRAIN, "{x: 50, length: 8, misleads: 0.0, fails_below: 0, wait_s: 0}"),
        *("space.task.arguments.x={type: float, low: 0, high: 100}", stages),
        *("search=optuna_asha", "search/scheduler=none", "search.num_trials=5", "search.max_retries=0"),
        *("search.default_first=true", "scaling.isolation=warm", "cluster.num_cpus=4", "--name=staged", *more),
    )


def staged(done: Done, stage: int) -> list[dict[str, Any]]:
    trials: list[dict[str, Any]] = done.document["stages"][stage - 1]["trials"]
    return trials


def xs(trials: list[dict[str, Any]]) -> list[float]:
    return [trial["params"]["task.arguments.x"] for trial in trials]


def best_first(trials: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(trials, key=lambda trial: float(trial["value"]))


def outcome(done: Done) -> list[tuple[Any, ...]]:
    """Every trial with its reports; the same however the sweep came there."""
    return [
        (
            trial.data.tags["sweeps.trial"],
            trial.data.tags.get("sweeps.stage"),
            trial.data.params,
            done.history(trial.info.run_id, "loss"),
        )
        for trial in done.trials()
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_best_points_of_each_stage_are_trained_first_in_the_next_and_their_orders_are_compared(
    tmp_path: Path,
) -> None:
    done = run(tmp_path, *prepare(tmp_path), report=True)
    assert done.status == 0, done.err
    first, second, search = staged(done, 1), staged(done, 2), done.document["trials"]
    assert ([each["trial"] for each in first], len(second), len(search)) == ([f"s1-{n:04}" for n in range(8)], 5, 5)
    assert {each["params"]["task.arguments.length"] for each in first} == {1}
    assert {each["params"]["task.arguments.length"] for each in second} == {3}
    assert all("task.arguments.length" not in each["params"] for each in search)
    # The config's own point, and the best of the stage before.
    assert xs(second)[0] == 50
    assert best_first(first)[0]["params"]["task.arguments.x"] in xs(second)
    assert len({*xs(first)} & {*xs(second)}) >= 4
    assert best_first(second)[0]["params"]["task.arguments.x"] in xs(search)
    assert len({*xs(second)} & {*xs(search)}) >= 3
    assert {each["steps"] for each in first} == {1}
    assert done.document["counts"]["finished"] == 5
    assert done.document["best"]["trial"] in {each["trial"] for each in search}
    agreements = [each["agreement"] for each in done.document["stages"]]
    assert [(each["tau"], each["high"]) for each in agreements] == [(1, 1), (1, 1)]
    assert agreements[0]["points"] >= 4
    assert -1 < agreements[0]["low"] < 1
    parent = done.parent().data.tags
    assert [each["best"] for each in json.loads(parent["sweeps.stages"])] == [
        best_first(first)[0]["trial"],
        best_first(second)[0]["trial"],
    ]
    assert "Stage 1: 8 of 8 trials with task.arguments.length=1" in parent["mlflow.note.content"]
    page = (done.folder / "outputs" / "staged" / "report" / "report.html").read_text(encoding="utf-8")
    assert "agreement with the search: Kendall" in page
    # An ended sweep is resumed without anything left to do, and shows its stages.
    assert verb(tmp_path, "resume", "staged", "--json").document == done.document
    verb(tmp_path, "show", "staged", "--trial", first[2]["trial"], "--why")


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("scheduler", ["asha", "none"])
def test_a_driver_killed_in_each_stage_goes_on_there_and_makes_no_trial_twice(tmp_path: Path, scheduler: str) -> None:
    # One trial at a time: otherwise the order of reports, and so what ASHA stops, depends on timing.
    more = ("task.arguments.wait_s=0.3", "tracking.report=false", "cluster.num_cpus=2", f"search/scheduler={scheduler}")
    undisturbed = run(tmp_path / "undisturbed", *prepare(tmp_path / "undisturbed", *more))
    assert (undisturbed.document["counts"]["pruned"] > 0) == (scheduler == "asha")
    folder = tmp_path / "killed"
    process = start(folder, "run", *prepare(folder, *more))
    for stage in (1, 2):
        wait_for(folder, "staged", lambda record, n=stage: count_ended(record, n) >= 2, process, within_s=300)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        process = start(folder, "resume", "staged")
    ended(folder, process, within_s=300)
    killed = verb(folder, "show", "staged", "--json")
    assert outcome(killed) == outcome(undisturbed)
    assert [each["agreement"] for each in killed.document["stages"]] == [
        each["agreement"] for each in undisturbed.document["stages"]
    ]


def count_ended(record: Any, stage: int) -> int:
    return sum(trial.state in ("finished", "pruned") for trial in record.staged if trial.stage == stage)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_stage_that_misleads_is_measured_to_do_so_and_one_that_fails_ends_the_search(tmp_path: Path) -> None:
    one = "search.stages=[{overrides: ['task.arguments.length=2'], num_trials: 8, keep: 5}]"
    done = run(tmp_path / "a", *prepare(tmp_path / "a", "task.arguments.misleads=1.0", stages=one))
    assert done.status == 0, done.err
    agreement = done.document["stages"][0]["agreement"]
    assert agreement["points"] >= 5
    assert agreement["low"] <= agreement["tau"] < 0.5
    failed = run(tmp_path / "b", *prepare(tmp_path / "b", "task.arguments.fails_below=5", stages=one))
    assert failed.status == 1
    assert failed.document["trials"] == []
    assert "stage 1 has no trial with a value" in failed.parent().data.tags["sweeps.ended"]
