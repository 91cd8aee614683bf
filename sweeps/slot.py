"""A slot: a running worker group (one ``TorchTrainer``) that trains a trial.

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
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.callback import ControllerCallback, WorkerGroupCallback
from ray.util import remove_placement_group

from sweeps.mailbox import Ended, Log, Report, Started
from sweeps_train.config import TrainingConfig

ABORT_TIMEOUT_S = 5.0
START_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Assignment:
    """What the workers of a trial are given."""

    trial: str
    attempt: int
    training: TrainingConfig
    metric: str
    mode: str
    checkpoint_folder: str
    mailbox: Any


@dataclass(frozen=True)
class Workers:
    """What the worker group of a trial consists of."""

    num_workers: int
    use_gpu: bool
    resources_per_worker: dict[str, float]
    storage_path: str
    """Absolute folder, or URI, for Ray Train's own files."""


class Slot:
    """One worker group, from the moment it is asked for to the moment its resources are free again."""

    def __init__(self, workers: Workers, assignment: Assignment):
        self._assignment = assignment
        self._mailbox = assignment.mailbox
        name = f"{assignment.trial}-{assignment.attempt}"
        self._trainer = _Trainer(
            train_assignment,
            train_loop_config={"assignment": assignment},
            scaling_config=ScalingConfig(
                num_workers=workers.num_workers,
                use_gpu=workers.use_gpu,
                resources_per_worker=workers.resources_per_worker,
            ),
            run_config=RunConfig(
                name=name,
                storage_path=workers.storage_path,
                failure_config=FailureConfig(max_failures=0),  # a retry is a new slot, counted by trial
                callbacks=[_Watch(assignment.trial, assignment.attempt, self._mailbox)],  # type: ignore[list-item]
            ),
        )
        self._thread = threading.Thread(target=self._fit, name=f"slot-{name}", daemon=True)
        self._stopped = False

    def start(self) -> None:
        """Ask for the workers; returns at once."""
        self._thread.start()

    def _fit(self) -> None:
        error = None
        try:
            self._trainer.fit()
        except Exception as exception:  # noqa: BLE001 - whatever it is, the trial must hear of it
            error = None if self._stopped else _reason(exception)
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(self._mailbox.ended.remote(Ended(self._assignment.trial, self._assignment.attempt, error)))

    def stop(self) -> None:
        """Free the workers now. Idempotent."""
        self._stopped = True
        if not self._thread.is_alive():
            return
        handles = self._wait_for_handles()
        controller = handles.get("controller")
        if controller is not None:
            with contextlib.suppress(ray.exceptions.RayError):  # the controller exits while it answers
                ray.get(controller.abort.remote(), timeout=ABORT_TIMEOUT_S)
            self._thread.join(ABORT_TIMEOUT_S)
        if self._thread.is_alive():
            self._kill(handles)
            self._thread.join(ABORT_TIMEOUT_S)

    def _wait_for_handles(self) -> dict[str, Any]:
        """A group that is still being started cannot be freed: its placement group is not known yet."""
        deadline = time.monotonic() + START_TIMEOUT_S
        handles: dict[str, Any] = {}
        while time.monotonic() < deadline and self._thread.is_alive():
            handles = ray.get(self._mailbox.handles.remote(self._assignment.trial))
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
        return [each for each in callbacks if not isinstance(each, PlacementGroupCleanerCallback)]


class _Watch(ControllerCallback, WorkerGroupCallback):
    """Runs in Train's controller: tells the mailbox what has been started, so that the slot can free it."""

    def __init__(self, trial: str, attempt: int, mailbox: Any):
        self._trial, self._attempt, self._mailbox = trial, attempt, mailbox

    def after_controller_start(self, train_run_context: Any) -> None:
        self._tell({"controller": ray.get_runtime_context().current_actor})

    def after_worker_group_start(self, worker_group: Any) -> None:
        self._tell(
            {
                "placement_group": worker_group.get_worker_group_state().placement_group_handle.placement_group,
                "workers": [worker.actor for worker in worker_group.get_workers()],
            }
        )

    def _tell(self, handles: dict[str, Any]) -> None:
        ray.get(self._mailbox.controller_started.remote(self._trial, self._attempt, handles))


def _reason(exception: BaseException) -> str:
    """The error that a person can act on: the first worker's own, without Ray's wrapping."""
    failures = getattr(exception, "worker_failures", None)
    if failures:
        exception = next(iter(failures.values()))
    cause = getattr(exception, "cause", None)
    exception = cause if isinstance(cause, BaseException) else exception
    text = str(exception).strip()
    last = text.splitlines()[-1].strip() if text else type(exception).__name__
    name = type(exception).__name__
    return last if last.startswith(name) or ": " in last else f"{name}: {last}"


def train_assignment(config: dict[str, Any]) -> None:
    """Runs on every worker: the training loop, with the mailbox as its reporter."""
    import ray.train

    from sweeps_train.loop import train

    assignment: Assignment = config["assignment"]
    reporter = MailboxReporter(assignment) if ray.train.get_context().get_world_rank() == 0 else None
    train(
        assignment.training,
        reporter=reporter,
        checkpoint_folder=assignment.checkpoint_folder,
        metric=assignment.metric,
        mode=assignment.mode,
    )
    if reporter is not None:
        reporter.flush()


class MailboxReporter:
    """Rank 0's side of the mailbox: posts without waiting."""

    def __init__(self, assignment: Assignment):
        self._to = assignment
        self._mailbox = assignment.mailbox
        self._stop = self._mailbox.stop_requested.remote(assignment.trial, assignment.attempt)
        self._previous_report: Any = None
        self._posted: list[Any] = []
        self._post(Started(assignment.trial, assignment.attempt, _now_ms()))

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self._post(Log(self._to.trial, self._to.attempt, step, metrics, _now_ms()))

    def report(self, step: int, metrics: dict[str, float], checkpoint: str | None, done: bool) -> None:
        if self._previous_report is not None:
            ray.get(self._previous_report)  # an asynchronous actor may reorder; reports must not be
        report = Report(self._to.trial, self._to.attempt, step, metrics, _now_ms(), checkpoint, done)
        self._previous_report = self._post(report)

    def should_stop(self) -> bool:
        ready, _ = ray.wait([self._stop], timeout=0)
        return bool(ready)

    def flush(self) -> None:
        """Wait until everything has arrived: only then may the worker group end."""
        ray.get(self._posted)

    def _post(self, event: Log | Report | Started) -> Any:
        posted = self._mailbox.post.remote(event)
        _, self._posted = ray.wait([*self._posted, posted], num_returns=len(self._posted) + 1, timeout=0)
        return posted


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
