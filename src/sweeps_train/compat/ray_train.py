"""Private names of Ray Train: the object in each worker behind ``ray.train.report`` and similar functions."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ray.train.v2._internal.execution import collective_impl
from ray.train.v2._internal.execution.train_fn_utils import (
    DistributedTrainFnUtils,
    get_train_fn_utils,
    set_train_fn_utils,
)
from ray.train.v2.api.report_config import CheckpointConsistencyMode, CheckpointUploadMode
from ray.train.v2.api.reported_checkpoint import ReportedCheckpoint, ReportedCheckpointStatus

__all__ = [
    "CheckpointConsistencyMode",
    "CheckpointUploadMode",
    "DistributedTrainFnUtils",
    "ReportedCheckpoint",
    "ReportedCheckpointStatus",
    "broadcast_in_report",
    "get_train_fn_utils",
    "replaced_train_fn_utils",
]

T = TypeVar("T")


@contextmanager
def replaced_train_fn_utils(utils: DistributedTrainFnUtils) -> Iterator[None]:
    """Route the calls of ``ray.train`` in this worker through ``utils``."""
    before = get_train_fn_utils()
    set_train_fn_utils(utils)
    try:
        yield
    finally:
        set_train_fn_utils(before)


_NAMED: dict[str, Any] = (
    {"caller_method_name": "ray.train.report"}
    if "caller_method_name" in inspect.signature(collective_impl.broadcast_from_rank_zero).parameters
    else {}
)
"""Arguments that Ray's broadcast accepts from 2.58 on."""


def broadcast_in_report(value: T | None) -> T:
    """Broadcast rank 0's value to every worker; from Ray 2.58 on, Ray's error about workers that do not call it names
    ``ray.train.report``."""
    received: T = collective_impl.broadcast_from_rank_zero(value, **_NAMED)
    return received
