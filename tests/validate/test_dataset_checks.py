"""Mistakes in ``task.datasets`` are found from the sources, before Ray starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sweeps.errors import DoesNotFit, UserError
from sweeps.plan.plan import Plan, make_plan
from sweeps.runtime.trials_at_once import fit
from sweeps.validate.dataset_checks import names_read

USERS = """
import ray.data
import ray.train
from ray.train import get_dataset_shard
from own_helpers import evaluate

def rows(count, seed=0):
    return ray.data.range(count)

def train(config):
    shard = ray.train.get_dataset_shard("train")
    if config["checks"]:
        other = get_dataset_shard(dataset_name="checks")
    evaluate()

"""
BY_VARIABLE = """
import ray.train

def train(config):
    for name in config["names"]:
        ray.train.get_dataset_shard(name)
"""
HELPERS = """
import ray.train

def evaluate():
    return ray.train.get_dataset_shard("held_out")
"""
PLAIN = "def train(config):\n    pass\n"
CONF = """
# A function of this test.
defaults:
  [task: function, search: random, scaling: single_worker, checkpoint: last, tracking: mlflow, cluster: local, _self_]
name: own
seed: 0
task: {_target_: users.train, arguments: {checks: false}, metrics: [loss]}
search: {metric: loss, mode: min, num_trials: 99}
cluster: {num_cpus: 2}
"""
TRAIN = "+task.datasets.train={_target_: users.rows, arguments: {count: 8}}"


@pytest.fixture(autouse=True)
def _modules(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, source in (("users", USERS), ("own_helpers", HELPERS), ("plain", PLAIN), ("variable", BY_VARIABLE)):
        (working_folder / f"{name}.py").write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)  # of another test in this process
    (working_folder / "own.yaml").write_text(CONF)
    monkeypatch.setattr(sys, "path", [str(working_folder), *sys.path])


def planned(*tokens: str) -> Plan:
    return make_plan(["conf=own.yaml", *tokens], [], "data", "")


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ([], ["task.datasets.train: task._target_=users.train reads it", "._target_=module.make"]),
        (["+task.datasets.train._target_=users.rowz"], ["task.datasets.train._target_=users.rowz", "mean rows?"]),
        (["+task.datasets.train._target_=nowhere.rows"], ["there is no module 'nowhere'"]),
        ([TRAIN, "+task.datasets.train.arguments.sead=1"], ["task.datasets.train.arguments.sead=1", "mean seed?"]),
        (
            [TRAIN, "+task.datasets.extra={_target_: users.rows, arguments: {count: 1}}"],
            ["task.datasets.extra: task._target_=users.train reads checks, held_out, train", "~task.datasets.extra"],
        ),
        (
            [TRAIN, "task._target_=plain.train"],
            ["task.datasets.train: task._target_=plain.train does not call get_dataset_shard"],
        ),
        (
            [TRAIN, "+task.dataset_config.datasets_to_split=[trian]"],
            ["task.dataset_config.datasets_to_split=['trian']", "mean train?"],
        ),
        ([TRAIN, "scaling.num_workers=2"], ["num_cpus=1", "raise cluster.num_cpus to 3"]),
        ([TRAIN, "+task.framework=script", "task._target_=users"], ["task: datasets=", "remove datasets"]),
        (["+task.datasets.train={_target_: users.rows, count: 8}"], ["train.count=8", "task.datasets.train.arguments"]),
    ],
)
def test_a_mistake_is_named_with_the_key_and_the_fix(tokens: list[str], words: list[str]) -> None:
    with pytest.raises(UserError) as raised:
        planned(*tokens)
    assert [word for word in words if word not in str(raised.value)] == []


def test_names_are_found_in_the_users_modules_and_unknown_where_they_are_computed() -> None:
    assert names_read("plain.train") == set()
    assert names_read("own_helpers.evaluate") == {"held_out"}
    assert names_read("users.train") == {"train", "checks", "held_out"}
    assert names_read("variable.train") is None


@pytest.mark.parametrize(("cpus", "at_once"), [(2, 1), (3, 1), (4, 2), (7, 3)])
def test_each_trial_leaves_a_cpu_for_its_datasets(cpus: int, at_once: int) -> None:
    plan = planned(TRAIN)
    trials = fit(plan.config, plan.scalings, [{"CPU": float(cpus)}])
    assert (trials.concurrent, trials.data_cpus) == (at_once, 1.0)
    assert "1 CPU for its datasets" in trials.describe()
    with pytest.raises(DoesNotFit, match=r"task\.dataset_config\.num_cpus=1"):
        fit(plan.config, plan.scalings, [{"CPU": 1.0}])
