"""Private names of Ray Train and Ray Data (2.60), and their differences in older releases."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import Any

from ray.train import FailureConfig
from ray.train.v2._internal.callbacks import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.callback import ControllerCallback, WorkerGroupCallback
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

REQUESTS = ("_send_resource_request", "_maybe_send_resource_request", "_cancel_resource_request")
"""Methods of a scaling policy that use an actor to tell Ray's autoscaler what a worker group needs."""


class ControllerHooks(ControllerCallback, WorkerGroupCallback):
    """Base of callbacks that Ray Train's controller calls when it and its worker group start and end."""


def without_retries() -> FailureConfig:
    """Return the configuration of a worker group that ends at its first failure, including the loss of a node."""
    limits = {"max_failures": 0}
    if "max_preemption_failures" in {each.name for each in dataclasses.fields(FailureConfig)}:  # from Ray 2.58 on
        limits["max_preemption_failures"] = 0
    return FailureConfig(**limits)  # type: ignore[arg-type]  # typed by Ray as another class


class LeanTrainer(DataParallelTrainer):
    """Ray Train trainer that omits three actors which Ray starts for each worker group.

    The controller runs in the process that calls ``fit``, instead of a process of its own, which would have to start
    before the workers. The placement group cleaner may fail forever (ray#58515, ray#61756, ray#65443), so the owner
    must free the group itself; workers that read no Ray Data do not need the manager of Ray Data.
    """

    cluster_grows = True
    """Whether to report the workers' needs to an autoscaler, through an actor that Ray starts for the whole cluster."""
    _running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    def abort(self) -> None:
        """End the workers and ``fit`` from another thread; has no effect before or after ``fit``. While the workers
        wait for space on the cluster, the abort takes effect once they have it or stop waiting."""
        if (running := self._running) is not None:
            loop, task = running
            with contextlib.suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(task.cancel)

    def _create_default_callbacks(self) -> list[Any]:
        callbacks = super()._create_default_callbacks()
        unused = (PlacementGroupCleanerCallback, DatasetsCallback)
        return [each for each in callbacks if not isinstance(each, unused)]

    def _initialize_and_run_controller(self, **arguments: Any) -> Any:
        if not self.cluster_grows:
            for method in REQUESTS:
                setattr(arguments["scaling_policy"], method, lambda: None)
        return asyncio.run(self._control(arguments))

    async def _control(self, arguments: dict[str, Any]) -> Any:
        controller: Any = TrainController(**arguments)
        self._running = asyncio.get_running_loop(), asyncio.ensure_future(controller.run())
        try:
            await self._running[1]
        except asyncio.CancelledError:
            # Not the controller's own abort, which would end this process.
            if (group := controller.get_worker_group()) is not None:
                group.abort()
            raise Aborted from None
        finally:
            self._running = None
        return controller.get_result()


class Aborted(Exception):
    """Raised by ``fit`` after ``abort``."""


def start_autoscaling_coordinator() -> None:
    """Start the single Ray actor to which every worker group reports its resources, without waiting for it."""
    from ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator import (
        get_or_create_autoscaling_coordinator,
    )

    get_or_create_autoscaling_coordinator()  # type: ignore[no-untyped-call]
