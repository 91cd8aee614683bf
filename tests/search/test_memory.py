"""Estimate of a trial's memory before it starts, from the memory of other trials."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
import pytest
from spaces import space_of

from sweeps.config.search import Limit
from sweeps.driver.startup import estimate_memory
from sweeps.runtime.trials_at_once import Fit, memory_per_worker
from sweeps.search import MemoryEstimate
from sweeps.space.suggester import RandomDraws

SPACE = space_of(
    {
        "train.batch_size": {"type": "int", "low": 8, "high": 512, "log": True},
        "model.width": {"type": "int", "low": 16, "high": 1024, "log": True},
        "model": {"type": "categorical", "choices": ["small", "large"]},
        "train.lr": {"type": "float", "low": 1e-5, "high": 1e-1, "log": True},
    }
)
GPU, RAM = "system/gpu_memory_mib", "system/memory_mib"
STUDY = optuna.create_study()


def taken(point: dict[str, object]) -> float:
    size = {"small": 1.0, "large": 4.0}[str(point["model"])]
    return 500 + float(str(point["train.batch_size"])) * float(str(point["model.width"])) * size / 50


def points(count: int, seed: int) -> list[dict[str, object]]:
    draws = RandomDraws(seed)
    return [SPACE.sample(draws, lambda path: None) for _ in range(count)]


def learned(count: int, metric: str = GPU, **options: object) -> MemoryEstimate:
    memory = MemoryEstimate(SPACE, **options)  # type: ignore[arg-type]
    for index, point in enumerate(points(count, seed=0)):
        memory.observe(index, point, {metric: 0.5 * taken(point)})
        memory.observe(index, point, {metric: taken(point), "train/loss": 1.0})
        memory.observe(index, point, {metric: 0.7 * taken(point)})
    return memory


def test_nothing_is_said_before_something_is_known() -> None:
    assert learned(2).describe(points(1, 1)[0]) == ""
    assert learned(2).refuse(STUDY, points(1, 1)[0]) is None


def test_a_sweep_starts_without_the_memory_of_earlier_sweeps_if_their_store_does_not_answer(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    tracking = SimpleNamespace(uri=f"sqlite:///{tmp_path}/file/mlflow.db")
    config = SimpleNamespace(search=SimpleNamespace(limits={}), tracking=tracking)
    earlier = SimpleNamespace(name="earlier", runs=["run"], points=points(1, 1))
    plan: Any = SimpleNamespace(config=config, space=SPACE, warm_start=[earlier])
    trials: Any = SimpleNamespace(pools=True)
    new: Any = SimpleNamespace(earlier=None)
    assert estimate_memory(plan, trials, [], new).describe(points(1, 1)[0]) == ""


def test_peaks_are_predicted_with_an_error_bar_that_holds() -> None:
    memory = learned(40)
    new = points(200, seed=1)
    off, within = [], []
    for point in new:
        estimate = memory.estimate(point, GPU)
        assert estimate is not None
        off.append(abs(np.log(estimate.mib / taken(point))))
        within.append(abs(estimate.mib - taken(point)) < 2 * estimate.error)
    spread = np.abs(np.log([taken(point) for point in new]) - np.median(np.log([taken(point) for point in new])))
    assert np.median(off) < 0.5 * np.median(spread)
    assert np.mean(within) > 0.85


def test_the_estimate_is_a_phrase_that_warns_where_it_does_not_fit() -> None:
    small = {"train.batch_size": 8, "model.width": 16, "model": "small", "train.lr": 1e-3}
    large = {"train.batch_size": 512, "model.width": 1024, "model": "large", "train.lr": 1e-3}
    memory = learned(40, room={GPU: 8192.0})
    said = memory.describe(small)
    assert re.fullmatch(r"about [\d.]+ GiB of GPU memory a worker \(\+-[\d.]+\)", said)
    assert memory.describe(large).endswith("MORE THAN THE 8 THAT IT HAS")
    assert "GiB of memory a worker" in learned(40, metric=RAM).describe(small)


def test_the_room_that_workers_report_counts_and_of_these_the_smallest() -> None:
    large = {"train.batch_size": 512, "model.width": 1024, "model": "large", "train.lr": 1e-3}
    memory = learned(40, room={GPU: 2.0**20})
    assert "MORE THAN" not in memory.describe(large)
    memory.observe_limits({"system/gpu_memory_limit_mib": 40960.0, "train/loss": 1.0})
    memory.observe_limits({"system/gpu_memory_limit_mib": 8192.0})  # of another GPU, or a part of one
    memory.observe_limits({"system/gpu_memory_limit_mib": 20480.0})
    assert memory.describe(large).endswith("MORE THAN THE 8 THAT IT HAS")


def test_the_error_of_a_large_estimate_is_written_out() -> None:
    memory = MemoryEstimate(SPACE)
    for index, point in enumerate(points(4, seed=0)):
        memory.observe(index, point, {GPU: 2.0 ** (14 + index)})
    assert re.search(r"\(\+-\d\d+\)$", memory.describe(points(1, seed=1)[0]))


def test_a_trial_without_a_place_in_the_space_keeps_no_other_from_an_estimate() -> None:
    memory = learned(10)
    with pytest.raises(ValueError, match="math domain"):
        memory.observe("other", points(1, seed=1)[0] | {"train.lr": 0.0}, {GPU: 4096.0})
    assert memory.describe(points(1, seed=1)[0])


def test_a_limit_on_memory_refuses_what_will_surely_break_it() -> None:
    memory = learned(60, limits={GPU: Limit(max=4000)})
    refused = [point for point in points(300, seed=2) if memory.refuse(STUDY, point)]
    assert refused
    assert sum(taken(point) > 4000 for point in refused) > 0.9 * len(refused)
    assert all(learned(60).refuse(STUDY, point) is None for point in refused[:5])


@pytest.mark.parametrize(
    ("nodes", "room"),
    [
        ([{"CPU": 4, "memory": 16 * 2**30}], 4096),  # two trials of two workers
        ([{"CPU": 2, "memory": 16 * 2**30}, {"CPU": 2, "memory": 4 * 2**30}], 2048),
        ([{"CPU": 64, "memory": 16 * 2**30}], 4096),
    ],
)
def test_a_worker_has_its_share_of_its_node(nodes: list[dict[str, float]], room: float) -> None:
    places = Fit(use_gpu=False, per_worker={"CPU": 1.0}, num_workers=2, concurrent=2)
    assert memory_per_worker(places, nodes) == {RAM: room}
    assert memory_per_worker(places, [{"CPU": 4}]) == {}
