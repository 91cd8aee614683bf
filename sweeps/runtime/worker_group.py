"""A slot: a running worker group (one ``TorchTrainer``) that trials are given to, one after another.

A warm slot outlives its trials: processes, process group, imported libraries, tokenized data and base model stay.
Ray Train leaves the workers of a trial that was stopped early to a cleaner that may never succeed (ray#58515,
#61756, #65443): here the slot frees its own, at once, and the cleaner is not started.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import Any

import ray
from ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator import (
    get_or_create_autoscaling_coordinator,
)
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.callback import ControllerCallback, WorkerGroupCallback
from ray.util import remove_placement_group

from sweeps.runtime.broker import Ended
from sweeps.runtime.error_summary import reason
from sweeps.runtime.lost_worker import dead_workers, lost_workers
from sweeps.runtime.worker import Assignment, serve
from sweeps.worker_error import WorkerError

MEMORY_FACTOR, MEMORY_SLACK_MIB = 1.5, 512.0
"""A slot one of whose workers has grown beyond this since its first trial is rebuilt."""
RELEASE_TIMEOUT_S = 20.0
"""Seconds that workers have to notice that their trial is over, or three times as long as they have been silent
before, if that is longer; then they are killed, and the slot rebuilt."""
ABORT_TIMEOUT_S = 5.0
START_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Workers:
    """What the worker group of a trial consists of."""

    num_workers: int
    use_gpu: bool
    resources_per_worker: dict[str, float]
    placement: str
    """Ray's ``placement_strategy``."""
    accelerator_type: str | None
    labels: dict[str, str]
    """That a node must have."""
    storage_path: str
    """Absolute folder, or URI, for Ray Train's own files."""


def prepare_slots() -> None:
    """Starts, without waiting, what the first worker group would otherwise start and wait for: Ray's one actor that
    is told of every group's resources."""
    get_or_create_autoscaling_coordinator()  # type: ignore[no-untyped-call]


class Slot:
    """One worker group, from the moment it is asked for to the moment its resources are free again."""

    def __init__(self, name: str, workers: Workers, mailbox: Any):
        self.workers = workers
        self._name, self._mailbox = name, mailbox
        self._trainer = _Trainer(
            serve,
            train_loop_config={"slot": name, "mailbox": mailbox},
            scaling_config=ScalingConfig(
                num_workers=workers.num_workers,
                use_gpu=workers.use_gpu,
                resources_per_worker=workers.resources_per_worker,
                placement_strategy=workers.placement,
                accelerator_type=workers.accelerator_type,
                label_selector=workers.labels or None,  # type: ignore[call-arg]  # typed as an older class
            ),
            run_config=RunConfig(
                name=name,
                storage_path=workers.storage_path,
                failure_config=FailureConfig(max_failures=0),  # a retry is counted by trial, and gets a new slot
                callbacks=[_Watch(name, mailbox)],  # type: ignore[list-item]
            ),
        )
        self._thread = threading.Thread(target=self._fit, name=f"slot-{name}", daemon=True)
        self._trial: tuple[str, int] | None = None
        self._first_memory_mib: tuple[float, ...] | None = None
        self._stopped = False
        self._thread.start()

    def assign(self, assignment: Assignment) -> None:
        """Give the workers a trial; they take it as soon as they have started."""
        self._trial = assignment.trial, assignment.attempt
        ray.get(self._mailbox.assign.remote(self._name, assignment))
        if not self._thread.is_alive():  # it died while it was idle
            self._say_ended("the slot's workers died before the trial began")

    def release(self) -> bool:
        """Wait until the workers are done with their trial, which is told to stop; whether they can take another."""
        if self._trial is None or not self._thread.is_alive():
            return False
        self._mailbox.stop.remote(*self._trial)
        try:
            ended: Ended | None = ray.get(self._mailbox.wait_ended.remote(*self._trial, RELEASE_TIMEOUT_S))
            if ended is None or ended.error is not None or self._has_grown(ended.memory_mib):
                return False
            return bool(ray.get(self._mailbox.reserve.remote(self._name)))
        except ray.exceptions.RayError:
            return False

    def _has_grown(self, memory_mib: tuple[float, ...]) -> bool:
        if self._first_memory_mib is None:
            self._first_memory_mib = memory_mib
        grown = zip(memory_mib, self._first_memory_mib, strict=True)
        return any(now > first * MEMORY_FACTOR + MEMORY_SLACK_MIB for now, first in grown)

    def close(self) -> None:
        """Free the workers now. Idempotent."""
        self._stopped = True
        handles: dict[str, Any] = {}
        if self._thread.is_alive():
            with contextlib.suppress(ray.exceptions.RayError):  # without the mailbox there is nothing to abort with
                ray.get(self._mailbox.close_slot.remote(self._name))
                handles = self._wait_for_handles()
            with contextlib.suppress(ray.exceptions.RayError):  # the controller exits while it answers
                if (controller := handles.get("controller")) is not None and self._thread.is_alive():
                    ray.get(controller.abort.remote(), timeout=ABORT_TIMEOUT_S)
            self._thread.join(ABORT_TIMEOUT_S)
        if self._thread.is_alive():
            self._kill(handles)
            self._thread.join(ABORT_TIMEOUT_S)
        self._mailbox.forget_slot.remote(self._name)

    def _fit(self) -> None:
        error: str | None = None
        lost: tuple[WorkerError, ...] = ()
        try:
            self._trainer.fit()
        except Exception as exception:  # noqa: BLE001 - whatever it is, the trial must hear of it
            if not self._stopped:
                error, lost = reason(exception), self._lost(exception)
        self._say_ended(error, lost)

    def _lost(self, exception: BaseException) -> tuple[WorkerError, ...]:
        try:
            handles = ray.get(self._mailbox.handles.remote(self._name))
        except ray.exceptions.RayError:
            return ()
        return lost_workers(exception, handles.get("places", ()))

    def _say_ended(self, error: str | None, lost: tuple[WorkerError, ...] = ()) -> None:
        if self._trial is not None:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(self._mailbox.ended.remote(Ended(*self._trial, error, others=lost)))

    def _wait_for_handles(self) -> dict[str, Any]:
        """A group that is still being started cannot be freed: its placement group is not known yet."""
        deadline = time.monotonic() + START_TIMEOUT_S
        handles: dict[str, Any] = {}
        while time.monotonic() < deadline and self._thread.is_alive():
            handles = ray.get(self._mailbox.handles.remote(self._name))
            if "workers" in handles:
                break
            time.sleep(0.05)
        return handles

    def _kill(self, handles: dict[str, Any]) -> None:
        for actor in [*handles.get("workers", []), handles.get("controller")]:
            if actor is not None:
                ray.kill(actor)
        if "placement_group" in handles:
            remove_placement_group(handles["placement_group"])


class _Trainer(TorchTrainer):
    def _create_default_callbacks(self) -> list[Any]:
        callbacks = super()._create_default_callbacks()  # type: ignore[misc]  # typed by Ray as another class
        # Nor Ray Data's manager, a process for each worker group, where nobody uses Ray Data.
        unused = (PlacementGroupCleanerCallback, DatasetsCallback)
        return [each for each in callbacks if not isinstance(each, unused)]


class _Watch(ControllerCallback, WorkerGroupCallback):
    """Runs in Train's controller: tells the mailbox what has been started, so that the slot can free it."""

    def __init__(self, slot: str, mailbox: Any):
        self._slot, self._mailbox = slot, mailbox

    def after_controller_start(self, train_run_context: Any) -> None:
        self._tell({"controller": ray.get_runtime_context().current_actor})

    def after_worker_group_start(self, worker_group: Any) -> None:
        self._tell(
            {
                "placement_group": worker_group.get_worker_group_state().placement_group_handle.placement_group,
                "workers": [worker.actor for worker in worker_group.get_workers()],
                "places": tuple(map(_place, worker_group.get_workers())),
                "processes": [(each.metadata.node_id, each.metadata.pid) for each in worker_group.get_workers()],
            }
        )

    def before_worker_group_shutdown(self, worker_group: Any) -> None:
        """If workers have lost the connection to another one, find out which one died, while the others still live."""
        with contextlib.suppress(ray.exceptions.RayError):  # without the mailbox nobody wants to know
            attempt = ray.get(self._mailbox.unexplained.remote(self._slot))
            if attempt is not None:
                workers = worker_group.get_workers()
                for error in dead_workers([each.actor for each in workers], tuple(map(_place, workers))):
                    ray.get(self._mailbox.failed.remote(*attempt, error))

    def _tell(self, handles: dict[str, Any]) -> None:
        ray.get(self._mailbox.slot_started.remote(self._slot, handles))


def _place(worker: Any) -> str:
    """``host``, or ``host/0`` on its GPU 0."""
    gpus = ",".join(map(str, worker.metadata.gpu_ids))
    return f"{worker.metadata.hostname}/{gpus}" if gpus else str(worker.metadata.hostname)
