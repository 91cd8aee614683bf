"""Resources, limits and times that a trial gives its workers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweeps.compose.search_path import ConfSearchPath
from sweeps.compose.sweep import compose_sweep
from sweeps.constants import PARAMETERS, TRIAL
from sweeps.runtime import trainable, worker_group
from sweeps.runtime.assignment import Assignment
from sweeps.runtime.placement import fit
from sweeps.runtime.trainable import Trial, TrialContext
from sweeps.runtime.worker_group import DIAGNOSIS_S, Slot, WorkerGroupSpec

NODE = {"CPU": 17.0, "GPU": 4.0, "memory": 2.0**36}
SHARED = ("space=none", "scaling.num_workers=1", "scaling.resources_per_worker={GPU: 0.5}", "scaling.hang_timeout_s=90")


def answering(**answers: Any) -> Any:
    """A broker with these answers."""
    return SimpleNamespace(
        **{name: SimpleNamespace(remote=lambda *_, answer=answer: answer) for name, answer in answers.items()}
    )


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Assignment, WorkerGroupSpec]:
    """Assignment and workers that the first trial of a sweep gives to its slot."""
    composition = compose_sweep("digits", list(SHARED), ConfSearchPath([]))
    trials = fit(composition.config, [composition.config.scaling], [NODE])
    broker = answering(nodes_to_avoid=(), begin=(1, None))
    found: list[Any] = []
    trial: Any = object.__new__(Trial)
    trial._context = TrialContext(composition, str(tmp_path), None, None, trials, broker)
    trial._slot = SimpleNamespace(release=lambda *_, **__: None, assign=lambda *each: found.append(each))
    trial._largest_micro_batch, trial._trial, trial._is_elastic = None, "", False
    monkeypatch.setattr(trainable, "ray", SimpleNamespace(get=lambda answer: answer))
    trial._begin({TRIAL: "0000", PARAMETERS: {}})
    assignment, spec = found[0]
    return assignment, spec


def test_a_worker_with_half_a_gpu_has_half_its_memory_and_of_the_cpus_beside_it(
    given: tuple[Assignment, WorkerGroupSpec],
) -> None:
    assignment, spec = given
    assert assignment.memory_share == 0.5
    assert spec.resources_per_worker == {"CPU": 2.0, "GPU": 0.5}


def test_operations_among_workers_may_take_a_minute_more_than_a_hang(
    given: tuple[Assignment, WorkerGroupSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    class Trainer:
        def __init__(self, *_: Any, **options: Any) -> None:
            asked.update(options)

        def fit(self) -> None:
            pass

    monkeypatch.setattr(worker_group, "LeanTorchTrainer", Trainer)
    Slot("slot", given[1], answering())
    assert asked["torch_config"].timeout_s == 90 + DIAGNOSIS_S
    assert asked["scaling_config"].resources_per_worker == {"CPU": 2.0, "GPU": 0.5}
