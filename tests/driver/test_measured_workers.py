"""Which workers a sweep measures before its search, and which it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.exceptions import ActorDiedError

from sweeps.driver.measured_workers import arrangements, best
from sweeps.errors import ConfigError
from sweeps.plan.plan import Plan, make_plan
from sweeps.runtime import driver_side
from sweeps.runtime.attachment import Begun
from sweeps.runtime.broker_sides import TrialSide
from sweeps.runtime.driver_side import DriverSide
from sweeps.runtime.events import Event, Log
from sweeps.runtime.measured_trainings import MeasuredTrainings, joint_rate
from sweeps.runtime.node_resources import Resources
from sweeps.runtime.trainable import TrialContext
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


def test_no_more_trials_on_a_group_are_tried_than_the_search_runs_at_once(tmp_path: Path) -> None:
    for at_once, on_each in (("null", 16), ("6", 3), ("1", 1)):
        overrides = ("conf=llm_lora", "scaling.trials_per_group=auto", f"search.max_concurrent={at_once}")
        plan = make_plan([*overrides, "scaling.num_workers=2", "cluster.num_cpus=4"], [], "auto", "")
        its = fit(plan.config, plan.scalings, [{"CPU": 4.0}])
        context = TrialContext(plan.composition, str(tmp_path), None, None, its, broker=cast("TrialSide", None))
        lanes = context.workers(plan.config, its, None, ()).lanes
        assert lanes is not None
        assert lanes.number == on_each


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


class DyingBroker:
    """A broker whose process dies when it has a number of trainings, each of which logs as fast as it is asked."""

    def __init__(self, dies_at: int) -> None:
        self.of_trials: Any = self
        self.workers = None
        self.groups_ended = False
        self._dies_at, self._trainings, self._step = dies_at, list[str](), 0

    def begin(self, trial: str, **_: Any) -> Begun:
        if len(self._trainings) == self._dies_at:
            raise ActorDiedError
        self._trainings.append(trial)
        return Begun(1, None)

    def drain(self, _: float) -> list[Event]:
        self._step += 2
        return [Log(each, 1, self._step, {}, 100 * self._step) for each in self._trainings]

    def set_groups(self, most: int) -> None:
        pass

    def assign_lane(self, *_: Any) -> None:
        pass

    def end_groups(self) -> None:
        self.groups_ended = True


def measured_with(broker: Any, folder: Path) -> MeasuredTrainings:
    plan = make_plan([*MEASURED, "search.num_trials=64", "scaling.num_workers=2", "cluster.num_cpus=2"], [], "m", "")
    one = replace(fit(plan.config, plan.scalings, [{"CPU": 2.0}]), groups=1)
    context = TrialContext(plan.composition, str(folder), None, None, one, broker)
    return MeasuredTrainings(context, broker, lambda _: None, lambda _: None)


def test_what_was_measured_before_the_broker_died_counts(tmp_path: Path) -> None:
    broker = DyingBroker(dies_at=1)
    assert measured_with(broker, tmp_path).rates() == {1: pytest.approx(10.0)}
    assert broker.groups_ended
    with pytest.raises(ActorDiedError):
        measured_with(DyingBroker(dies_at=0), tmp_path).rates()


def test_a_broker_that_measures_is_not_restarted_since_no_driver_would_attach(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, Any]] = []

    def options(**given: Any) -> SimpleNamespace:
        started.append(given)
        return SimpleNamespace(remote=lambda: None)

    actor, node = SimpleNamespace(options=options), SimpleNamespace(get_node_id=lambda: "0" * 56)
    monkeypatch.setattr(driver_side, "ray", SimpleNamespace(remote=lambda _: actor, get_runtime_context=lambda: node))
    DriverSide(max_restarts=0)
    DriverSide()
    assert [each["max_restarts"] for each in started] == [0, driver_side.MAX_RESTARTS]
