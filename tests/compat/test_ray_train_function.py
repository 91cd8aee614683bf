"""Contract with the private names of Ray Train that ``sweeps_train`` uses: a failure says which has moved."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import ray.train
from packaging.version import Version
from ray.train.v2._internal.execution import collective_impl, train_fn_utils

from sweeps_train.compat.ray_train import (
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    DistributedTrainFnUtils,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
    replaced_train_fn_utils,
)
from sweeps_train.frameworks.ray_train import TrialTrainFnUtils

OVERRIDDEN = ("report", "get_checkpoint", "get_all_reported_checkpoints", "get_dataset_shard")


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize("method", OVERRIDDEN)
def test_a_method_that_is_replaced_takes_the_same_arguments(method: str) -> None:
    theirs = parameters(getattr(DistributedTrainFnUtils, method))
    assert parameters(getattr(TrialTrainFnUtils, method))[: len(theirs)] == theirs  # older releases take fewer


@pytest.mark.parametrize("method", ["get_context", "broadcast_from_rank_zero"])
def test_a_method_that_is_used_is_there(method: str) -> None:
    assert callable(getattr(DistributedTrainFnUtils, method, None)), f"DistributedTrainFnUtils.{method}"


def test_calls_of_ray_train_go_through_the_object_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    class Utils(DistributedTrainFnUtils):
        def __init__(self) -> None:
            pass

        def get_checkpoint(self) -> Any:
            return "replaced"

    monkeypatch.setattr(train_fn_utils, "_train_fn_utils", Utils())
    with replaced_train_fn_utils(Utils()):
        assert ray.train.get_checkpoint() == "replaced", "set_train_fn_utils"


def test_a_value_is_broadcast_under_the_name_of_the_calling_function() -> None:
    named = ["caller_method_name"] if Version(ray.__version__) >= Version("2.58") else []
    assert parameters(collective_impl.broadcast_from_rank_zero)[:2] == ["data", *named]


def test_enumerations_have_the_values_that_are_used() -> None:
    for kind, name in (
        (CheckpointUploadMode, "SYNC"),
        (CheckpointConsistencyMode, "VALIDATED"),
        (ReportedCheckpointStatus, "COMMITTED"),
    ):
        assert hasattr(kind, name), f"{kind.__name__}.{name}"
    assert parameters(ReportedCheckpoint)[:3] == ["checkpoint", "metrics", "status"]
