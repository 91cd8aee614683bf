"""Ray Data sets of a user's function: made, split and read in each trial, whose arguments may be searched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from running import Done, points, run, verb

from sweeps_train.config import FunctionConfig
from sweeps_train.config.task import FunctionTask
from sweeps_train.frameworks.ray_data import make_datasets

pytestmark = pytest.mark.timeout(400)

USERS = """
import json, os, tempfile
from pathlib import Path
import ray.data
import ray.train

def rows(count):
    train = ray.data.range(count, override_num_blocks=4).map_batches(lambda batch: batch)
    return {"train": train.random_shuffle(seed=0), "held_out": ray.data.range(10)}

def no_rows(count=0):
    return [1, 2, 3]

def train(config):
    rank, fault = ray.train.get_context().get_world_rank(), config["fault"]
    train, held_out = ray.train.get_dataset_shard("train"), ray.train.get_dataset_shard("held_out")
    checkpoint, start = ray.train.get_checkpoint(), 0
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            start = int((Path(folder) / "epoch").read_text())
    for epoch in range(start, 2):
        read = []
        for batch in train.iter_batches(batch_size=2):
            read += batch["id"].tolist()
            if fault == "leaves":
                break
        also = [number for batch in held_out.iter_batches() for number in batch["id"].tolist()]
        line = {"fault": fault, "rank": rank, "epoch": epoch, "read": read, "held_out": also, "pid": os.getpid()}
        with open(config["notes"], "a") as file:
            file.write(json.dumps(line) + "\\n")
        if fault == "dies" and epoch == 1 and start == 0 and rank == 1:
            os.kill(os.getpid(), 9)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "epoch").write_text(str(epoch + 1))
            ray.train.report({"loss": 1 / len(read)}, checkpoint=ray.train.Checkpoint.from_directory(folder))
"""
CONF = """
# A function of this test.
defaults:
  [task: function, search: random, scaling: two_workers, checkpoint: last, tracking: mlflow, cluster: local, _self_]
name: own
seed: 0
task:
  _target_: users.train
  arguments: {fault: none, notes: NOTES}
  datasets:
    train: {_target_: users.rows, arguments: {count: 8}}
    held_out: {_target_: users.rows, arguments: "${task.datasets.train.arguments}"}
  dataset_config: {datasets_to_split: [train]}
search: {metric: loss, mode: min, default_first: false}
"""
COUNT = "task.datasets.train.arguments.count"
ROWS = {"none": 16, "leaves": 12, "dies": 8}
"""Rows of the dataset by fault; half of them are a worker's part."""


def notes(done: Done, fault: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (done.folder / "notes").read_text().splitlines())
    return [line for line in lines if line["fault"] == fault]


@pytest.fixture(scope="module", params=["warm", pytest.param("process", marks=pytest.mark.slow)])
def sweep(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Done:
    """A sweep whose trials need two CPUs for workers and one for data; ``process`` trains two at once."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "users.py").write_text(USERS)
    (folder / "own.yaml").write_text(CONF.replace("NOTES", str(folder / "notes")))
    given = points(*({"task.arguments.fault": fault, COUNT: rows} for fault, rows in ROWS.items()))
    return run(
        folder,
        "conf=own.yaml",
        f"task.arguments.fault=choice({', '.join(ROWS)})",
        f"{COUNT}=choice({', '.join(map(str, ROWS.values()))})",
        given,
        f"search.num_trials={len(ROWS)}",
        f"scaling.isolation={request.param}",
        f"cluster.num_cpus={3 if request.param == 'warm' else 6}",
    )


@pytest.mark.slow
def test_every_worker_reads_its_own_part_of_the_searched_dataset_and_all_of_one_that_is_not_split(sweep: Done) -> None:
    assert [trial["state"] for trial in sweep.document["trials"]] == ["finished"] * len(ROWS), sweep.err
    for epoch in range(2):
        read = {line["rank"]: line for line in notes(sweep, "none") if line["epoch"] == epoch}
        assert sorted(read[0]["read"] + read[1]["read"]) == list(range(ROWS["none"]))
        assert len(read[0]["read"]) == len(read[1]["read"])
        assert read[0]["held_out"] == read[1]["held_out"] == list(range(10))


@pytest.mark.slow
def test_a_trial_that_leaves_its_dataset_half_read_does_not_disturb_the_next_one(sweep: Done) -> None:
    assert {(line["epoch"], len(line["read"])) for line in notes(sweep, "leaves")} == {(0, 2), (1, 2)}
    assert sorted(row for line in notes(sweep, "dies")[:2] for row in line["read"]) == list(range(ROWS["dies"]))


@pytest.mark.slow
def test_a_trial_whose_worker_died_makes_its_datasets_again_and_continues(sweep: Done) -> None:
    assert [trial["attempts"] for trial in sweep.document["trials"]] == [1, 1, 2]
    last = notes(sweep, "dies")[-2:]
    assert [line["epoch"] for line in last] == [1, 1]
    assert sorted(row for line in last for row in line["read"]) == list(range(ROWS["dies"]))


def task(**datasets: str) -> FunctionTask:
    named = {name: {"_target_": target} for name, target in datasets.items()}
    return FunctionConfig(
        task={"kind": "function", "_target_": "users.train", "datasets": named}, checkpoint={}, seed=0
    ).task


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"train": "users.no_rows"}, "task.datasets.train._target_=users.no_rows returned a list; return a ray.data"),
        ({"other": "users.rows"}, "task.datasets.other.arguments={} do not fit"),
        ({"train": "users.missing"}, "task.datasets.train._target_=users.missing cannot be imported"),
    ],
)
def test_what_is_no_dataset_is_named(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch, made: dict[str, str], words: str
) -> None:
    (working_folder / "users.py").write_text(USERS)
    monkeypatch.syspath_prepend(str(working_folder))
    with pytest.raises((ValueError, TypeError)) as raised:
        make_datasets(task(**made))
    assert words in str(raised.value)


@pytest.mark.slow
def test_a_dataset_that_cannot_be_made_ends_the_sweep_before_its_first_trial(tmp_path: Path) -> None:
    (tmp_path / "users.py").write_text(USERS)
    (tmp_path / "own.yaml").write_text(CONF.replace("NOTES", str(tmp_path / "notes")))
    wrong = "task.datasets.held_out._target_=users.no_rows"
    refused = verb(tmp_path, "run", "conf=own.yaml", "search.num_trials=1", "cluster.num_cpus=3", wrong, status=2)
    assert "task.datasets.held_out._target_=users.no_rows returned a list" in refused.err
    assert not list((tmp_path / "outputs").iterdir())


DATA = '''"""Local rows like those that Ray's example reads from its own bucket."""
import numpy as np
import pandas as pd
import ray.data


def rows(test_size):
    numbers = np.random.default_rng(0).normal(size=(200, 100)).astype("float32")
    table = pd.DataFrame({"x": list(numbers), "y": numbers[:, 0]})
    train, validation = ray.data.from_pandas(table).repartition(4).train_test_split(test_size, shuffle=True, seed=0)
    return {"train": train, "validation": validation}
'''


REGRESSION = """
# Ray's own example.
defaults:
  [task: function, search: random, scaling: two_workers, checkpoint: last, tracking: mlflow, cluster: local, _self_]
name: regression
seed: 0
task:
  _target_: ray.train.examples.pytorch.torch_regression_example.train_func
  arguments: {lr: 1e-2, hidden_size: 20, batch_size: 4, epochs: 3}
  metrics: [loss]
  datasets:
    train: {_target_: local_rows.rows, arguments: {test_size: 0.3}}
    validation: {_target_: local_rows.rows, arguments: {test_size: 0.3}}
  dataset_config: {datasets_to_split: [train]}
space:
  task.arguments.lr: {type: float, low: 1e-3, high: 1e-1, log: true}
search: {metric: loss, mode: min, num_trials: 2}
cluster: {num_cpus: 3}
"""


@pytest.mark.slow
def test_rays_own_regression_example_runs_unchanged(tmp_path: Path) -> None:
    (tmp_path / "local_rows.py").write_text(DATA)
    (tmp_path / "regression.yaml").write_text(REGRESSION)
    done = run(tmp_path, "conf=regression.yaml", "search/scheduler=none")
    assert [trial["state"] for trial in done.document["trials"]] == ["finished", "finished"], done.err
