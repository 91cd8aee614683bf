"""Stand-ins for the processes of trials, so that one machine can run a sweep of a thousand workers.

Of each trial, Tune's actor and the worker group are replaced: the code of the actor
(``sweeps.runtime.trainable.Trial``) runs in a thread, and instead of a worker group a second thread takes the
assignments from the broker and reports a curve that it computes, through the worker's own reporter. Everything else is
what every sweep has: Tune's loop with its placement groups and futures, searcher, scheduler, broker, the driver's event
loop, the study, the journal and MLflow.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray

from sweeps.runtime.broker_sides import TrialSide
from sweeps.runtime.trial_assignment import Assignment
from sweeps.runtime.trial_reporter import BrokerReporter
from sweeps.runtime.worker_group_spec import WorkerGroupSpec
from sweeps_train.reports.progress import Progress
from sweeps_train.reports.reporter import Stop

GAPS = "gaps"
"""Beginning of the files with the seconds between a worker's end of a trial and its next one."""
ENDS_WITHIN_S = 600.0


class Stage:
    """Actor whose threads run the trials of many Tune actors."""

    def __init__(self, folder: str):
        import sweeps.runtime.trainable

        sweeps.runtime.trainable.SlotHolder = StandInSlots  # type: ignore[misc,assignment,attr-defined]
        StandInSlots.gaps = Path(folder) / f"{GAPS}-{os.getpid()}"
        self._trials: dict[str, Any] = {}

    def create(self, key: str, trainable: Callable[..., Any], kwargs: dict[str, Any]) -> None:
        self._trials[key] = trainable(**kwargs)

    def call(self, key: str, method: str, arguments: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return getattr(self._trials[key], method)(*arguments, **kwargs)


class StandInSlots:
    """Slots of one trial's actor, one after another; the only worker of each is a thread."""

    gaps: Path

    def __init__(self, broker: TrialSide):
        self._broker = broker
        self._name: str | None = None
        self._attempt: tuple[str, int] | None = None

    def release(self, spec: WorkerGroupSpec, *, reuse: bool) -> None:
        if self._name is not None and self._attempt is not None:
            self._broker.stop(*self._attempt)
            self._broker.wait_for_end(self._name, ENDS_WITHIN_S, is_patient=True)
            if not self._broker.reserve(self._name, spec.avoid, spec.workers):  # it was idle too long
                self._name = None

    def assign(self, assignment: Assignment, spec: WorkerGroupSpec) -> None:
        is_new, self._name = self._name is None, self._name or f"slot-{uuid.uuid4().hex}"
        self._attempt = assignment.trial, assignment.attempt
        self._broker.assign(self._name, assignment)
        if is_new:
            threading.Thread(target=self._work, args=(self._name,), daemon=True).start()

    def close(self) -> None:
        if self._name is not None:
            self._broker.close_slot(self._name)

    def _work(self, slot: str) -> None:
        freed: float | None = None
        workers = self._broker.workers
        for index in itertools.count():
            assignment = workers.next_assignment(slot, index)
            if assignment is None:
                return
            if freed is not None:
                with self.gaps.open("a") as file:
                    file.write(f"{time.monotonic() - freed:.4f}\n")
            _report_curve(assignment)
            workers.worker_finished(assignment.trial, assignment.attempt, 0, 1, 500.0, None)
            freed = time.monotonic()


def _report_curve(assignment: Assignment) -> None:
    """Report what a training would, at once: it improves with its steps, to a value that follows from its point."""
    train = assignment.training.train
    worse = abs(math.log10(train.lr) + 2.5) / 4 + (0.05 if train.optimizer == "sgd" else 0.0)
    reporter = BrokerReporter(assignment)
    for step in range(train.eval_every, train.max_steps + 1, train.eval_every):
        accuracy = (1 - worse) * (1 - math.exp(-step / 60))
        system = {"system/memory_mib": 500.0, "train/samples_per_second": 1e4}
        progress = Progress(step=step, epochs=step / 20, samples=64 * step, seconds=step / 100)
        reporter.log(progress, {"train/loss": 2.3 - 2 * accuracy, "train/lr": train.lr, **system})
        metrics = {"eval/accuracy": accuracy, "eval/loss": 2.3 - 2 * accuracy, **system}
        reporter.report(progress, metrics, checkpoint=None, done=step + train.eval_every > train.max_steps)
        if reporter.should_stop() is not Stop.NO:
            break
    reporter.flush()


class StandInActor:
    """Stand-in for the handle of a trial's actor."""

    def __init__(self, stage: Any, trainable: Any, kwargs: dict[str, Any]):
        self.key, self.stage = uuid.uuid4().hex, stage
        self.ready = stage.create.remote(self.key, trainable, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and not name.startswith("__ray_"):
            raise AttributeError(name)
        return _Method(self, name)


class _Method:
    def __init__(self, actor: StandInActor, name: str):
        self._actor, self._name = actor, name

    def remote(self, *arguments: Any, **kwargs: Any) -> Any:
        actor = self._actor
        if self._name in ("__ray_ready__", "__ray_terminate__"):
            return actor.ready
        return actor.stage.call.remote(actor.key, self._name, arguments, kwargs)


def stand_in(folder: Path, stages: int, threads: int) -> None:
    """Replace Tune's actors in this process from now on. Each of the ``stages``, processes that stand in for those of
    all trials, runs ``threads`` calls at a time; workers write measurements into the folder."""
    from ray.actor import ActorClass
    from ray.tune.execution.class_cache import _ActorClassCache

    started: list[Any] = []
    trainables: dict[Any, Any] = {}

    class StandInClass(ActorClass):  # type: ignore[type-arg,misc]
        """Stand-in for the class of a trial's actor."""

        def __init__(self) -> None:
            pass

        def options(self, **_: Any) -> Any:
            return self

        def remote(self, **kwargs: Any) -> StandInActor:
            if not started:
                actor: Any = ray.remote(Stage)
                options = {"num_cpus": 0, "max_concurrency": threads}
                started.extend(actor.options(**options).remote(str(folder)) for _ in range(stages))
            started.append(started.pop(0))
            return StandInActor(started[0], trainables["ref"], kwargs)

    def get(_: Any, trainable: Any) -> Any:
        if "class" not in trainables:
            trainables["ref"] = ray.put(trainable)
            trainables["class"] = object.__new__(StandInClass)
        return trainables["class"]

    _ActorClassCache.get = get
    kill = ray.kill
    ray.kill = lambda actor, **options: None if isinstance(actor, StandInActor) else kill(actor, **options)
