"""Resources, limits and times that a trial gives its workers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweeps.compose.hydra_composition import compose_sweep
from sweeps.compose.search_path import ConfSearchPath
from sweeps.constants import PARAMETERS, TRIAL
from sweeps.runtime import worker_group
from sweeps.runtime.attachment import Begun
from sweeps.runtime.trainable import Trial, TrialContext
from sweeps.runtime.trial_assignment import Assignment
from sweeps.runtime.trials_at_once import fit
from sweeps.runtime.worker_group import DIAGNOSIS_S, Slot
from sweeps.runtime.worker_group_spec import WorkerGroupSpec

NODE = {"CPU": 17.0, "GPU": 4.0, "memory": 2.0**36}
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


@pytest.fixture
def given(begun: tuple[Any, list[Any]]) -> tuple[Assignment, WorkerGroupSpec]:
    """Assignment and workers that the first trial of a sweep gives to its slot."""
    assignment, spec = begun[1][0]
    return assignment, spec


@pytest.fixture
def begun(tmp_path: Path) -> tuple[Any, list[Any]]:
    """The first trial of a sweep, and what it has given to its slot."""
    composition = compose_sweep("digits", list(SHARED), ConfSearchPath([]))
    trials = fit(composition.config, [composition.config.scaling], [NODE])
    broker = answering(nodes_to_avoid=(), begin=Begun(1, None))
    found: list[Any] = []
    trial: Any = object.__new__(Trial)
    trial._context = TrialContext(composition, str(tmp_path), None, None, trials, broker)
    trial._slot = SimpleNamespace(release=lambda *_, **__: None, assign=lambda *each: found.append(each))
    trial._trial, trial._is_elastic, trial._has_failed = "", False, False
    trial._take({TRIAL: "0000", PARAMETERS: {}})
    trial._begin()
    trial._has_begun = True
    return trial, found


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

    monkeypatch.setattr(worker_group, "LeanTrainer", Trainer)
    Slot("slot", given[1], answering())
    assert asked["backend_config"].timeout_s == 90 + DIAGNOSIS_S
    assert asked["scaling_config"].resources_per_worker == {"CPU": 2.0, "GPU": 0.5}
