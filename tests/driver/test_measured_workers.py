"""Which workers a sweep measures before its search, and which it takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sweeps.driver.measured_workers import arrangements, best
from sweeps.errors import ConfigError
from sweeps.plan.plan import Plan, make_plan
from sweeps.runtime.events import Log
from sweeps.runtime.measured_trainings import joint_rate
from sweeps.runtime.node_resources import Resources
from sweeps.runtime.trials_at_once import fit

MEASURED = ["conf=llm_lora", "scaling.trials_per_group=auto", "scaling.measure_workers=true"]


def found(nodes: Sequence[Resources], *overrides: str) -> list[str]:
    """The arrangements of a sweep on these nodes."""
    here = ("cluster.num_cpus=16", f"cluster.num_gpus={sum(int(node.get('GPU', 0)) for node in nodes)}")
    plan = make_plan([*MEASURED, "search.num_trials=64", *here, *overrides], [], "measured", "")

    def fit_of(each: Plan) -> Any:
        return fit(each.config, each.scalings, nodes)

    return [str(each) for each in arrangements(plan, fit_of(plan), fit_of)]


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_on_cpus_the_workers_of_a_group_are_more_or_fewer() -> None:
    two = found([{"CPU": 2.0}], "scaling.num_workers=2")
    assert two == ["1 group of 2 workers", "2 groups of 1 worker"]
    eight = found([{"CPU": 4.0}, {"CPU": 4.0}], "scaling.num_workers=4", "train.global_batch_size=16")
    assert eight == ["2 groups of 4 workers", "8 groups of 1 worker", "4 groups of 2 workers", "1 group of 8 workers"]


def test_batches_that_some_workers_cannot_divide_leave_these_out() -> None:
    assert "4 groups of 2 workers" in found([{"CPU": 8.0}], "train.global_batch_size=2")
    assert "2 groups of 4 workers" not in found([{"CPU": 8.0}], "train.global_batch_size=2")


def test_on_a_gpu_several_groups_may_share_it_unless_the_config_says_how_many() -> None:
    gpu = [{"CPU": 16.0, "GPU": 1.0}]
    one = ("scaling.num_workers=1",)
    assert found(gpu, *one) == [
        "1 group of 1 worker",
        "2 groups of 1 worker with 0.5 GPU",
        "4 groups of 1 worker with 0.25 GPU",
    ]
    assert found(gpu, *one, "scaling.resources_per_worker.GPU=0.5") == ["2 groups of 1 worker with 0.5 GPU"]


def test_no_more_groups_are_measured_than_the_search_can_use() -> None:
    assert found([{"CPU": 8.0}], "search.max_concurrent=3") == [
        "3 groups of 2 workers",
        "3 groups of 1 worker",
        "2 groups of 4 workers",
        "1 group of 8 workers",
    ]


def test_the_fastest_is_taken_and_the_own_workers_unless_others_gain_five_percent() -> None:
    assert best([{1: 10.0, 2: 15.0, 4: 15.1}, {1: 12.0, 2: 15.5}]) == (0, 2)
    assert best([{1: 10.0, 2: 15.0, 4: 15.1}, {1: 12.0, 2: 16.0, 4: 16.1}]) == (1, 2)
    assert best([{1: 10.0, 2: 9.0}]) == (0, 1)


def logs(trial: str, start_s: float, step_s: float, number: int) -> list[Log]:
    return [Log(trial, 1, 2 * each, {}, round(1000 * (start_s + 2 * each * step_s))) for each in range(1, number + 1)]


def test_rates_are_added_over_the_time_in_which_all_train() -> None:
    alone = logs("a", 0.0, 0.1, 90)  # alone for 18 s, then at half the speed
    together = [Log("a", 1, 180 + each.step, {}, each.timestamp_ms) for each in logs("a", 18.0, 0.2, 15)]
    late = logs("b", 18.0, 0.2, 11)
    assert joint_rate([[*alone, *together], late]) == pytest.approx(10.0)
    assert joint_rate([[*alone, *together], late[:9]]) is None
    assert joint_rate([alone, late]) is None, "the first one has no logs beside the second"


def test_workers_are_measured_only_with_the_number_of_trials_that_share_them() -> None:
    with pytest.raises(ConfigError, match=r"scaling.measure_workers=true: needs scaling.trials_per_group=auto, not 2"):
        make_plan(["conf=llm_lora", "scaling.trials_per_group=2", "scaling.measure_workers=true"], [], "two", "")
    plan = make_plan(["conf=digits", *MEASURED[1:]], [], "alone", "")
    assert not plan.config.scaling.measure_workers
    assert any("trials_per_group=auto is 1, and no workers are measured: task.kind" in note for note in plan.notes)
