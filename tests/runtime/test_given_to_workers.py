"""Resources, limits and times that a trial gives its workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import ray
from attempts import assignment
from composing import composed_digits
from training_runs import IMAGES, configured

from sweeps.constants import COST, GPU_HOURS, ORIGIN, PARAMETERS, TRIAL
from sweeps.runtime import worker_group, worker_loop
from sweeps.runtime.attachment import Begun, NotCurrent
from sweeps.runtime.checkpoint_layout import Origin
from sweeps.runtime.events import Ended, Report
from sweeps.runtime.node_resources import accelerator, label
from sweeps.runtime.report_log import ReportLog
from sweeps.runtime.slot_queue import StartedGroup
from sweeps.runtime.trainable import Trial, TrialContext
from sweeps.runtime.trial_assignment import Assignment
from sweeps.runtime.trial_cost import CostMeter
from sweeps.runtime.trials_at_once import fit
from sweeps.runtime.worker_group import DIAGNOSIS_S, Slot, SlotHolder
from sweeps.runtime.worker_group_spec import WorkerGroupSpec
from sweeps_train import loop
from sweeps_train.memory import device_memory

NODE = {"CPU": 17.0, "GPU": 4.0, "memory": 2.0**36, accelerator("A100"): 1.0, label("zone", "a"): 1.0}
SHARED = (
    "search.limits={system/memory_mib: {max: 1e6}}",
    "space=none",
    "scaling.num_workers=1",
    "scaling.resources_per_worker={GPU: 0.5}",
    "scaling.hang_timeout_s=90",
)


def answering(**answers: Any) -> Any:
    """A broker with these answers."""
    return SimpleNamespace(
        workers=None, **{name: lambda *_, given=given, **__: given for name, given in answers.items()}
    )


def given_by(
    folder: Path, *tokens: str, uri: str | None = None, errors: Sequence[Exception] = (), **config: Any
) -> tuple[Assignment, WorkerGroupSpec]:
    """Assignment and workers that the first trial of a sweep gives to its slot, once it is refused with no error."""
    composition = composed_digits(*SHARED, *tokens)
    trials = fit(composition.config, [composition.config.scaling], [NODE])
    broker = answering(nodes_to_avoid=(), begin=Begun(1, None))
    found: list[tuple[Assignment, WorkerGroupSpec]] = []
    trial: Any = object.__new__(Trial)
    trial._context = TrialContext(composition, str(folder), uri, None, trials, broker)
    refusals = [*errors]

    def assign(assignment: Assignment, spec: WorkerGroupSpec) -> None:
        if refusals:
            raise refusals.pop()
        found.append((assignment, spec))

    trial._slot = SimpleNamespace(release=lambda *_, **__: None, assign=assign, close=lambda: None)
    trial._trial = ""
    trial._take({TRIAL: "0000", PARAMETERS: {}, **config})
    trial._begin()
    return found[0]


@pytest.fixture
def given(tmp_path: Path) -> tuple[Assignment, WorkerGroupSpec]:
    return given_by(tmp_path)


def test_a_worker_with_half_a_gpu_has_half_its_memory_and_of_the_cpus_beside_it(
    given: tuple[Assignment, WorkerGroupSpec],
) -> None:
    assignment, spec = given
    assert assignment.memory_share == 0.5
    assert spec.resources_per_worker == {"CPU": 2.0, "GPU": 0.5}


@pytest.mark.parametrize("in_store", [False, True])
def test_a_trial_s_cost_goes_on_after_the_trial_has_copied_another_one_s_state(
    tmp_path: Path, *, in_store: bool
) -> None:
    folder = tmp_path / "trials" / "0000"
    for lineage, costs in ((folder, (100.0, 500.0)), (folder / "lineage-1", ())):  # it has copied another one twice
        log = ReportLog(str(lineage))
        for step, cost in enumerate(costs):
            log.write(Report("0000", 1, step, {COST: cost, "eval/loss": 0.5}, 0))
        log.close()
    uri = tmp_path.as_uri() if in_store else None
    priced = "search.stop.cost={limit: 1000, per_gpu_hour: 2}"
    assignment, _ = given_by(tmp_path, priced, uri=uri, **{ORIGIN: Origin("0007", 20, 2)})
    cost = CostMeter(assignment).at_report(20)
    assert 500.0 <= cost[COST] < 501.0
    assert 0.0 <= cost[GPU_HOURS] < 1.0, "it was not reported before"
    assignment, _ = given_by(tmp_path, priced, uri=uri)
    assert assignment.spent == {}


@pytest.mark.parametrize("error", [ray.exceptions.ActorUnavailableError("", b"0" * 16), NotCurrent()])
def test_a_trial_begins_again_if_the_broker_that_has_begun_it_dies_before_it_has_workers(
    tmp_path: Path, error: Exception
) -> None:
    assignment, _ = given_by(tmp_path, errors=[error])
    assert assignment.trial == "0000"


class Trainer:
    """Ray Train's trainer of a slot, which starts no worker; ``does`` is what ``fit`` does."""

    asked: ClassVar[dict[str, Any]] = {}
    does: ClassVar[Callable[[Any], object]]

    def __init__(self, *_: Any, **options: Any) -> None:
        self.asked.update(options)
        self.ended = threading.Event()

    def fit(self) -> None:
        type(self).does(self)

    def abort(self) -> None:
        self.ended.set()


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> type[Trainer]:
    monkeypatch.setattr(worker_group, "LeanTrainer", Trainer)
    monkeypatch.setattr(Trainer, "does", lambda self: None, raising=False)
    return Trainer


def test_a_group_that_has_started_as_the_broker_died_is_freed(
    given: tuple[Assignment, WorkerGroupSpec], trainer: type[Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray frees a group that did not start, but not one whose hook failed after its start."""
    group, removed = SimpleNamespace(bundle_specs=[{"CPU": 1.0}]), []

    def died(*_: Any) -> None:
        raise ray.exceptions.ActorDiedError

    monkeypatch.setattr(
        trainer, "does", lambda self: self.asked["run_config"].callbacks[0].after_worker_group_start(None)
    )
    monkeypatch.setattr(worker_group, "worker_processes", lambda _: [])
    monkeypatch.setattr(worker_group, "placement_group", lambda _: group)
    monkeypatch.setattr(worker_group, "remove_placement_group", removed.append)
    broker: Any = SimpleNamespace(workers=SimpleNamespace(slot_started=died))
    Slot("slot", given[1], broker).join()
    assert removed == [group]


def test_operations_among_workers_may_take_a_minute_more_than_a_hang(
    given: tuple[Assignment, WorkerGroupSpec], trainer: type[Trainer]
) -> None:
    Slot("slot", given[1], answering())
    assert trainer.asked["backend_config"].timeout_s == 90 + DIAGNOSIS_S
    assert trainer.asked["scaling_config"].resources_per_worker == {"CPU": 2.0, "GPU": 0.5}


def test_workers_that_do_not_stop_their_trial_are_waited_for_once(
    given: tuple[Assignment, WorkerGroupSpec], trainer: type[Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[bool] = []
    monkeypatch.setattr(trainer, "does", lambda self: self.ended.wait())
    broker = answering(**dict.fromkeys(("assign", "stop", "end", "close_slot", "forget_slot")))
    broker.wait_for_end = lambda *_, is_patient: waits.append(is_patient)
    for releases in (True, False):
        slot = Slot("slot", given[1], broker)
        slot._hooks.group = StartedGroup()
        slot.assign(given[0])
        if releases:
            assert not slot.release(given[1])
        slot.close()
    assert waits == [True, False]


@pytest.mark.parametrize(
    ("change", "is_kept"),
    [
        ("scaling.prepare_timeout_s=100", True),
        ("scaling.isolation=warm", True),
        ("scaling.placement=SPREAD", False),
        ("scaling.accelerator_type=A100", False),
        ("scaling.labels={zone: a}", False),
        ("scaling.resources_per_worker.CPU=1", False),
    ],
)
def test_workers_are_kept_for_the_next_trial_unless_it_needs_others(
    change: str,
    given: tuple[Assignment, WorkerGroupSpec],
    trainer: type[Trainer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_kept: bool,
) -> None:
    monkeypatch.setattr(worker_group, "START_TIMEOUT_S", 0.0)
    monkeypatch.setattr(trainer, "does", lambda self: self.ended.wait())
    closed: list[str] = []
    broker = answering(
        reserve=True, wait_for_end=Ended("0000", 1), **dict.fromkeys(("assign", "stop", "end", "forget_slot"))
    )
    broker.close_slot = closed.append
    holder = SlotHolder(broker)
    holder.assign(*given)
    holder.release(given_by(tmp_path, change)[1], reuse=True)
    assert (closed == []) == is_kept
    holder.close()


def test_a_worker_is_limited_to_its_share_before_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float | None] = []
    monkeypatch.setattr(device_memory, "_share", None)
    monkeypatch.setattr(loop, "train", lambda *_, **__: shares.append(device_memory._share))
    broker: Any = SimpleNamespace(alive=lambda *_: None)
    given = replace(assignment("0000", 1), training=configured(IMAGES), broker=broker, memory_share=0.5)
    worker_loop._train(given, None, is_main=False)
    assert shares == [0.5]
