"""Private names of Ray Train and Ray Data (2.60)."""

from __future__ import annotations

from typing import Any

from ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator import (
    get_or_create_autoscaling_coordinator,
)
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.callback import ControllerCallback, WorkerGroupCallback


class ControllerHooks(ControllerCallback, WorkerGroupCallback):
    """Base of callbacks that Ray Train's controller calls when it and its worker group start and end."""


class LeanTorchTrainer(TorchTrainer):
    """``TorchTrainer`` without two actors that it starts for each worker group.

    The placement group cleaner may fail forever (ray#58515, ray#61756, ray#65443), so the owner must free the group
    itself; the manager of Ray Data is of no use to workers that read no Ray Data.
    """

    def _create_default_callbacks(self) -> list[Any]:
        callbacks = super()._create_default_callbacks()  # type: ignore[misc]  # typed by Ray as another class
        unused = (PlacementGroupCleanerCallback, DatasetsCallback)
        return [each for each in callbacks if not isinstance(each, unused)]


def start_autoscaling_coordinator() -> None:
    """Start Ray's one actor that hears of every worker group's resources, without waiting for it."""
    get_or_create_autoscaling_coordinator()  # type: ignore[no-untyped-call]
