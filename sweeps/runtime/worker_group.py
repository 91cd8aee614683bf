"""Worker groups, whose worker processes are started, reused for further trials, rebuilt after a death, and freed here.

A slot is one running worker group (one trainer of Ray Train) that trials are given to, one after another. A warm slot
outlives its trials: processes, process group, imported libraries, tokenized data and base model stay. Ray Train leaves
the workers of a trial that was stopped early to a cleaner that may never succeed (ray#58515, ray#61756, ray#65443).
Here, the slot frees its own workers immediately, and the cleaner is not started.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from typing import Any

import ray
from ray.train import RunConfig, ScalingConfig
from ray.util import remove_placement_group

from sweeps.compat.ray_core import remove_orphaned_groups
from sweeps.compat.ray_train import ControllerHooks, LeanTrainer, without_retries
from sweeps.compat.ray_train_workers import (
    WorkerProcess,
    execute,
    let_exit,
    placement_group,
    worker_processes,
)
from sweeps.runtime.broker_sides import TrialSide, WorkersSide
from sweeps.runtime.cluster import ROOM_TIMEOUT
from sweeps.runtime.events import Ended
from sweeps.runtime.lane_loop import train_in_lanes
from sweeps.runtime.lost_worker import dead_workers, lost_workers, summarize_error
from sweeps.runtime.node_resources import avoiding
from sweeps.runtime.slot_queue import StartedGroup
from sweeps.runtime.spare_processes import keep_spares
from sweeps.runtime.termination import announce_sigterm
from sweeps.runtime.torch_process_group import ProcessGroup
from sweeps.runtime.trial_assignment import Assignment
from sweeps.runtime.worker_group_spec import WorkerGroupSpec
from sweeps.runtime.worker_loop import train_assignments
from sweeps.worker_error import WorkerError

MEMORY_FACTOR, MEMORY_SLACK_MIB = 1.5, 512.0
"""Growth of a worker's memory since its first trial, as a factor plus MiB, at which a slot is rebuilt."""
RELEASE_TIMEOUT_S = 20.0
"""Seconds for workers to notice that their trial is over; if another trial is to follow, three times their longest
previous silence if that is longer. After that they are killed, and the slot is rebuilt."""
DIAGNOSIS_S = 60.0
"""Additional seconds for operations among workers beyond ``hang_timeout_s``: NCCL ends a process whose operation takes
too long, and its stacks must be saved before that."""
EXITS_WITHIN_S = 10.0
"""Maximum seconds for workers to run their exit handlers."""
ABORT_TIMEOUT_S = 5.0 + EXITS_WITHIN_S
START_TIMEOUT_S = 30.0
CLOSED_WITHIN_S = RELEASE_TIMEOUT_S + START_TIMEOUT_S + 2 * ABORT_TIMEOUT_S
"""Maximum seconds to close a slot, in addition to the time that a program has to end."""


class Slot:
    """One worker group, from the request for its resources until they are free again."""

    def __init__(self, name: str, spec: WorkerGroupSpec, broker: TrialSide):
        self.spec = spec
        self._name, self._broker = name, broker
        workers = spec.workers
        self._hooks = _SlotHooks(name, broker.workers, spec)
        self._trainer = LeanTrainer(
            train_assignments if spec.lanes is None else train_in_lanes,
            train_loop_config={"slot": name, "broker": broker.workers, "lanes": spec.lanes},
            backend_config=ProcessGroup(
                "nccl" if spec.use_gpu else "gloo", timeout_s=math.ceil(spec.hang_timeout_s + DIAGNOSIS_S)
            ),
            scaling_config=ScalingConfig(
                num_workers=workers.number,
                use_gpu=spec.use_gpu,
                resources_per_worker=spec.resources_per_worker,
                placement_strategy=workers.placement,
                accelerator_type=workers.accelerator_type,
                label_selector=workers.labels | avoiding(spec.avoid) or None,  # type: ignore[call-arg]  # typed as an older class
            ),
            run_config=RunConfig(  # type: ignore[call-arg]  # likewise
                name=name,
                storage_path=spec.storage_path,
                # Retries are counted by trial, and get a new slot.
                failure_config=without_retries(),
                callbacks=[self._hooks],  # type: ignore[list-item]
                worker_runtime_env={"env_vars": spec.environment} if spec.environment else None,
            ),
        )
        self._trainer.cluster_grows = spec.cluster_grows
        self._thread = threading.Thread(target=self._fit, name=f"slot-{name}", daemon=True)
        self._attempt: tuple[str, int] | None = None
        """Trial and number of the attempt that the slot was last given."""
        self._ends_within_s = 0.0
        self._is_stuck = False
        """Whether the workers were asked to stop their trial and did not."""
        self._first_memory_mib: tuple[float, ...] | None = None
        self._is_closing = False
        self._thread.start()

    def assign(self, assignment: Assignment) -> None:
        """Assign a trial, which the workers begin as soon as they have started."""
        self._attempt = assignment.key
        self._ends_within_s = assignment.ends_within_s
        self._broker.assign(self._name, assignment)
        if not self._thread.is_alive():  # the workers died while they were idle
            self._end_attempt("the slot's workers died before the trial began")

    def release(self, spec: WorkerGroupSpec) -> bool:
        """Ask the workers to stop their trial, and wait until they have stopped; return whether they can take another
        trial.

        Args:
            spec: Workers of the next trial, which differ only in the nodes that they avoid.
        """
        if self._attempt is None or not self._thread.is_alive():
            return False
        try:
            ended = self._stop_attempt(is_patient=True)
            if ended is None or ended.error is not None or self._has_grown(ended.memory_mib):
                return False
            return self._broker.reserve(self._name, spec.avoid, spec.workers)
        except ray.exceptions.RayError:
            return False

    def _stop_attempt(self, *, is_patient: bool) -> Ended | None:
        """Ask the workers to stop their trial, and wait for its end; return None if that takes too long."""
        assert self._attempt is not None
        self._broker.stop(*self._attempt)
        within_s = RELEASE_TIMEOUT_S + self._ends_within_s
        ended = self._broker.wait_for_end(self._name, within_s, is_patient=is_patient)
        self._is_stuck = ended is None
        return ended

    def _has_grown(self, memory_mib: tuple[float, ...]) -> bool:
        if self._first_memory_mib is None:
            self._first_memory_mib = memory_mib
        grown = zip(memory_mib, self._first_memory_mib, strict=True)
        return any(now > first * MEMORY_FACTOR + MEMORY_SLACK_MIB for now, first in grown)

    def join(self) -> None:
        """Wait until the workers have ended."""
        self._thread.join()

    def close(self) -> None:
        """Free the workers now. Idempotent."""
        self._is_closing = True
        if self._thread.is_alive():
            with contextlib.suppress(ray.exceptions.RayError):
                if self._attempt is not None and not self._is_stuck:
                    # A program would outlive its worker, and a function leave its files behind. A function that is not
                    # at a report would train on until its next one: not for longer than ``CLOSED_WITHIN_S`` allows.
                    self._stop_attempt(is_patient=False)
            with contextlib.suppress(ray.exceptions.RayError):
                self._broker.close_slot(self._name)
            self._wait_for_start()
            self._trainer.abort()
            self._thread.join(ABORT_TIMEOUT_S)
        if self._thread.is_alive():
            self._kill()
            self._thread.join(ABORT_TIMEOUT_S)
        self._broker.forget_slot(self._name)

    def _fit(self) -> None:
        error: str | None = None
        lost: tuple[WorkerError, ...] = ()
        try:
            self._trainer.fit()
            if not self._is_closing:  # after the trial's end this is not reported
                error = "the workers returned before the trial had ended"
        except Exception as exception:  # noqa: BLE001 - any error must end the trial
            if not self._is_closing:
                error, lost = summarize_error(exception), self._lost_workers(exception)
            with contextlib.suppress(ray.exceptions.RayError):
                self._kill()  # Ray leaves a group whose hook failed, such as by the broker's death at that moment
        self._end_attempt(error, lost)

    def _lost_workers(self, exception: BaseException) -> tuple[WorkerError, ...]:
        group = self._hooks.group or StartedGroup()
        return lost_workers(exception, group.locations, group.nodes)

    def _end_attempt(self, error: str | None, lost: tuple[WorkerError, ...] = ()) -> None:
        if self.spec.lanes is not None:
            with contextlib.suppress(ray.exceptions.RayError):
                self._broker.slot_ended(self._name, error, lost)
        elif self._attempt is not None:
            with contextlib.suppress(ray.exceptions.RayError):
                self._broker.end(Ended(*self._attempt, error, others=lost))

    def _wait_for_start(self) -> None:
        """Wait until the group has started, because the placement group of a starting group is unknown and cannot be
        freed."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._hooks.group is None and time.monotonic() < deadline and self._thread.is_alive():
            time.sleep(0.05)

    def _kill(self) -> None:
        if (group := self._hooks.group) is not None:
            for actor in group.workers:
                ray.kill(actor)
            remove_placement_group(group.placement_group)


class _SlotHooks(ControllerHooks):
    """Hooks for Train's controller that store the handles of started actors and keep workers off the nodes to avoid."""

    def __init__(self, slot: str, broker: WorkersSide, spec: WorkerGroupSpec):
        self.group: StartedGroup | None = None
        """The workers and their placement group, by which the slot can free them; None until they have started."""
        self._workers: list[WorkerProcess] = []
        self._slot, self._broker, self._spec = slot, broker, spec
        self._asked: float | None = None
        """Time at which a placement group was last requested."""

    def on_controller_start_worker_group(self, **_: Any) -> dict[str, str] | None:
        """Return label selectors that keep the workers of a new placement group off nodes to avoid; None keeps the
        selectors of the slot's start."""
        spec = self._spec
        avoid = self._broker.nodes_to_avoid_now(spec.workers)
        return spec.workers.labels | avoiding(avoid) if set(avoid) - set(spec.avoid) else None

    def before_worker_group_start(self, worker_group_context: Any) -> None:
        """Free the workers of a trial whose actor has died, and tell the broker if the last placement group found no
        room, which is not a hang."""
        remove_orphaned_groups()
        before, self._asked = self._asked, time.monotonic()
        if before is not None and self._asked - before >= float(os.environ.get(ROOM_TIMEOUT, "inf")):
            self._broker.waits_for_room(self._slot)

    def after_worker_group_start(self, worker_group: Any) -> None:
        workers, group = worker_processes(worker_group), placement_group(worker_group)
        self._workers = workers
        self.group = StartedGroup(
            placement_group=group,
            reserved=dict(group.bundle_specs[0]),
            workers=[worker.actor for worker in workers],
            locations=tuple(worker.location for worker in workers),
            processes=[(worker.node_id, worker.process_id) for worker in workers],
        )
        self._broker.slot_started(self._slot, self.group)
        for rank, worker in enumerate(workers):
            execute(worker.actor, announce_sigterm, self._broker, self._slot, rank)
        if self._spec.spare_processes != "never":
            always = self._spec.spare_processes == "always"
            keep_spares(self._broker, self._slot, self.group.workers, always=always)

    def before_worker_group_shutdown(self, worker_group: Any) -> None:
        """Identify the worker that died, while the others, which lost the connection to it, are still alive."""
        with contextlib.suppress(ray.exceptions.RayError):  # without the broker nothing needs to be known
            if self._broker.group_ends(self._slot):
                for error in dead_workers(worker_processes(worker_group)):
                    self._broker.worker_of_slot_failed(self._slot, error)
        let_exit(self._workers, EXITS_WITHIN_S)

    def before_worker_group_abort(self, worker_group_context: Any) -> None:
        let_exit(self._workers, EXITS_WITHIN_S)


class SlotHolder:
    """The slot of a trial's actor: kept for the next trial while its workers are healthy, and rebuilt otherwise."""

    def __init__(self, broker: TrialSide):
        self._broker = broker
        self._slot: Slot | None = None

    def release(self, spec: WorkerGroupSpec, *, reuse: bool) -> None:
        """End the slot's trial, and keep the slot if it can take another one; otherwise free its workers.

        Args:
            spec: Workers of the next trial.
            reuse: Whether slots outlive trials.
        """
        if self._slot is not None and not (reuse and self._slot.spec == spec and self._slot.release(spec)):
            self.close()

    def assign(self, assignment: Assignment, spec: WorkerGroupSpec) -> None:
        """Give a trial to the slot that was kept, or to a new one."""
        if self._slot is None:
            self._slot = Slot(f"slot-{assignment.trial}-{assignment.attempt}", spec, self._broker)
        self._slot.assign(assignment)

    def close(self) -> None:
        """Free the workers."""
        if self._slot is not None:
            self._slot.close()
            self._slot = None


class LaneHolder:
    """Lane that an actor's trial occupies or waits for."""

    def __init__(self, broker: TrialSide):
        self._broker = broker
        self._attempt: tuple[str, int] | None = None

    def release(self, spec: WorkerGroupSpec, *, reuse: bool) -> None:
        """Let the trial leave its lane; the workers stay."""
        self.close()

    def assign(self, assignment: Assignment, spec: WorkerGroupSpec) -> None:
        """Give a trial to a lane."""
        self._attempt = assignment.key
        self._broker.assign_lane(assignment, spec)

    def close(self) -> None:
        """Let the trial leave its lane."""
        if self._attempt is not None:
            with contextlib.suppress(ray.exceptions.RayError):
                self._broker.leave_lane(*self._attempt, RELEASE_TIMEOUT_S)
            self._attempt = None
