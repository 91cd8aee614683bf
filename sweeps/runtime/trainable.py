"""The Tune trainable: gives a sampled config to a worker group, and reports the trial's results to Tune."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import ray
from ray import tune

from sweeps.compose import Composition
from sweeps.config import SweepConfig
from sweeps.constants import (
    COMPLETED,
    COST,
    FAILED,
    GPU_HOURS,
    LAST_DELIVERED,
    MAY_PAUSE,
    ORIGIN,
    PARAMETERS,
    POOL,
    STOPPED,
    TRIAL,
)
from sweeps.errors import TrialFailed
from sweeps.folders.sweep_folder import GROUPS_FOLDER, RAY_TRAIN_FOLDER
from sweeps.folders.trial_files import logs_location
from sweeps.runtime.answers import Outcome
from sweeps.runtime.attachment import BROKER_DIED, Begun, NotCurrent
from sweeps.runtime.broker_sides import TrialSide
from sweeps.runtime.checkpoint_layout import Origin, checkpoint_folder
from sweeps.runtime.events import Ended
from sweeps.runtime.node_resources import HEAD, avoiding
from sweeps.runtime.pool_evaluator import EvaluationPlace
from sweeps.runtime.reservation import memory_share, reserved_per_trial, reserved_per_worker
from sweeps.runtime.shared_folder import SharedFolder
from sweeps.runtime.trial_assignment import Assignment
from sweeps.runtime.trial_cost import metrics_before
from sweeps.runtime.trials_at_once import Fit, Workers
from sweeps.runtime.worker_group import LaneHolder, SlotHolder
from sweeps.runtime.worker_group_spec import Lanes, WorkerGroupSpec
from sweeps.storage.object_store import ObjectStore
from sweeps.worker_error import name_limit, names_a_mistake
from sweeps_train.config.process import process_environment


def trial_resources(pools: Sequence[str]) -> Callable[[dict[str, Any]], tune.PlacementGroupFactory]:
    """Return a function, for Tune's config, that returns the resources of a trial's actor, which only waits.

    Tune refuses an empty request, so the actor requests a little of ``HEAD``: a different amount in each pool, since
    Tune gives the idle actor of an ended trial, and with it the worker group, only to trials with the same request.
    """
    amounts = {name: 0.0001 * index for index, name in enumerate(pools, start=2)}

    def resources(config: dict[str, Any]) -> tune.PlacementGroupFactory:
        return tune.PlacementGroupFactory([{HEAD: amounts.get(config.get(POOL, ""), 0.0001)}])

    return resources


@dataclass(frozen=True)
class TrialContext:
    """Values that all trials of a sweep share."""

    composition: Composition
    folder: str
    """Absolute folder of the sweep; for a sweep in an object store, of the driver's copy of its own files."""
    uri: str | None
    """URI of the sweep's folder, if it is in an object store."""
    shared: SharedFolder | None
    """The sweep's folder with its mark, if it is a plain folder."""
    fit: Fit
    """Resources of a trial, in each pool."""
    broker: TrialSide
    start_timeout_s: float = 0.0
    """Seconds that workers may take to start, if longer than usual: a cluster may have to grow first."""

    @cached_property
    def trials(self) -> Path | ObjectStore:
        """Folder of all trials' checkpoints."""
        return (ObjectStore(self.uri) if self.uri is not None else Path(self.folder)) / "trials"

    @property
    def ray_train_folder(self) -> str:
        """Folder for Ray Train's own files, which contain no data of a trial."""
        if self.uri is None:
            return str(Path(self.folder) / RAY_TRAIN_FOLDER)
        return f"/tmp/sweeps-ray-train-{os.getuid()}"  # noqa: S108 - exists on every node, unlike the driver's folders

    def workers(self, sweep: SweepConfig, fit: Fit, pool: str | None, avoid: tuple[str, ...]) -> WorkerGroupSpec:
        scaling = sweep.scaling.placed
        reserved = reserved_per_worker(scaling, use_gpu=fit.use_gpu, cpus_per_gpu=fit.cpus_per_gpu)
        resources = {"CPU": reserved["CPU"], **scaling.resources_per_worker}
        lanes: Lanes | None = None
        if fit.lanes > 1:
            share = memory_share(resources, fit.workers_per_node, use_gpu=fit.use_gpu)
            most, number = self.composition.config.search.max_concurrent, fit.lanes
            if fit.finds_lanes and most is not None:  # more would never train together, and so never be measured
                number = min(number, math.ceil(most / fit.groups))
            logs = str(Path(self.folder) / GROUPS_FOLDER)
            lanes = Lanes(number, fit.finds_lanes, logs, self.shared, share, sweep.shared_values)
        return WorkerGroupSpec(
            workers=Workers(
                scaling.min_workers, reserved, scaling.placement, scaling.accelerator_type, scaling.labels, pool
            ),
            use_gpu=fit.use_gpu,
            resources_per_worker=resources,
            avoid=avoid,
            environment={} if sweep.loop is None else process_environment(sweep.loop, os.environ),
            hang_timeout_s=scaling.hang_timeout_s,
            spare_processes=sweep.spare_processes,
            cluster_grows=sweep.cluster.address != "local",
            storage_path=self.ray_train_folder,
            lanes=lanes,
        )


class Trial(tune.Trainable):
    """Tune trainable that trains one point of the space. ``step()`` waits until the trial has ended, or should end or
    pause. The driver decides at the workers' reports whether it should; Tune receives only the last report.

    The trial reserves no resources in Tune: its workers' placement group does, and the sweep limits how many trials run
    at once, so that no two half-placed trials can wait for each other.
    """

    def setup(self, config: dict[str, Any], context: TrialContext) -> None:  # type: ignore[override]  # Tune's way
        self._context = context
        self._slot = SlotHolder(context.broker) if context.fit.lanes == 1 else LaneHolder(context.broker)
        self._trial, self._is_elastic = "", False
        self._take(config)

    def _take(self, config: dict[str, Any]) -> None:
        """Store the trial's config and identity. In a new actor, the trial does not begin before its first step,
        because until then Tune may still move it to an actor that has become idle."""
        self._config, self._has_begun = config, False
        self._failure: str | None = None
        self._previous, self._trial = self._trial, config[TRIAL]
        origin: Origin | None = config.get(ORIGIN)
        self._num_exploits = origin.num_exploits if origin is not None else 0
        self._largest_micro_batch: int | None = None
        self._last: Mapping[str, Any] = {}

    def _begin_or_fail(self) -> None:
        """Begin the trial, and keep an error for ``step()``: Tune retries a trial that fails there, but not one that
        fails earlier."""
        self._has_begun = True
        try:
            self._begin()
        except Exception as error:  # noqa: BLE001 - any error is this trial's failure
            self._failure = name_limit(f"{type(error).__name__}: {error}")

    def _begin(self, lost: Ended | None = None) -> None:
        """Begin the trial, and do it again whenever the broker's process dies in the meantime.

        Args:
            lost: See ``Broker.begin``.
        """
        while True:
            try:
                self._give_to_slot(lost)
            except (ray.exceptions.ActorUnavailableError, NotCurrent):  # it has died between two calls
                self._slot.close()
            else:
                return

    def _give_to_slot(self, lost: Ended | None) -> None:
        """Assign the trial to the previous trial's slot if that is warm and suitable, otherwise to a new one."""
        sweep = self._planned()
        fit = self._context.fit.of(self._config.get(POOL))
        self._hang_timeout_s = sweep.scaling.hang_timeout_s
        self._previous = self._trial
        pool = self._config.get(POOL)
        spec = self._context.workers(sweep, fit, pool, self._context.broker.nodes_to_avoid(self._trial, pool))
        if fit.finds_lanes:  # the cost of the trial's part of the workers depends on it
            number, _ = self._context.broker.lanes()
            sweep = replace(sweep, scaling=replace(sweep.scaling.placed, trials_per_group=number))
        self._slot.release(spec, reuse=sweep.warm)
        begun = self._context.broker.begin(self._trial, saves_when_asked=sweep.loop is not None, lost=lost)
        self._attempt = begun.attempt
        self._slot.assign(self._assignment(sweep, fit, begun, spec), spec)

    def _planned(self) -> SweepConfig:
        """Return the config of the trial; an elastic trial waits for its workers."""
        config = self._config
        sweep = self._context.composition.trial(config[PARAMETERS]).in_pool(config.get(POOL))
        if config.get(MAY_PAUSE) is False:
            sweep = sweep.without_pauses()
        self._is_elastic = sweep.scaling.is_elastic
        if not self._is_elastic:
            return sweep
        steps = None if sweep.loop is None else sweep.loop.max_steps
        numbers, previous = sweep.worker_numbers(), self._previous or None
        return sweep.with_workers(self._context.broker.claim_workers(self._trial, numbers, steps, previous))

    def _assignment(self, sweep: SweepConfig, fit: Fit, begun: Begun, spec: WorkerGroupSpec) -> Assignment:
        """Return the attempt in the form that its workers receive."""
        context, config = self._context, self._config
        hourly = _hourly(sweep, use_gpu=fit.use_gpu, cpus_per_gpu=fit.cpus_per_gpu)
        return Assignment(
            trial=self._trial,
            attempt=begun.attempt,
            training=sweep.training(),
            metrics=sweep.search.metrics,
            modes=sweep.search.modes,
            shared=context.shared,
            sweep=Path(context.folder).name,
            checkpoint_folder=str(checkpoint_folder(context.trials, self._trial, self._num_exploits)),
            log_folder=logs_location(context.uri or context.folder, self._trial),
            hourly=hourly,
            spent=metrics_before(context.trials, self._trial, self._num_exploits) if hourly else {},
            evaluation=self._evaluation_place(sweep),
            origin=config.get(ORIGIN),
            largest_micro_batch=self._largest_micro_batch,
            waits_for_decision=sweep.search.pauses_trials,
            last_delivered=_last_delivered(begun, config, pauses=sweep.search.pauses_trials),
            broker=context.broker.workers,
            hang_timeout_s=sweep.scaling.hang_timeout_s,
            prepare_timeout_s=sweep.scaling.prepare_timeout_s,
            ends_within_s=sweep.ends_within_s,
            memory_share=memory_share(spec.resources_per_worker, fit.workers_per_node, use_gpu=fit.use_gpu),
            holds_checkpoints=context.uri is None
            and sweep.tracking.checkpoints == "copy"
            and bool(sweep.checkpoint.keep),
        )

    def _evaluation_place(self, config: SweepConfig) -> EvaluationPlace | None:
        """Return the resources and nodes for evaluations of a trial's checkpoints; None if its workers evaluate."""
        name, context = config.scaling.evaluation_pool, self._context
        if name is None:
            return None
        placed, fit = config.scaling.in_pool(name), context.fit.evaluation[name]
        resources = reserved_per_worker(placed, use_gpu=fit.use_gpu, cpus_per_gpu=fit.cpus_per_gpu)
        avoid = context.broker.nodes_to_avoid(self._trial, name)
        one = replace(config, scaling=replace(config.scaling, num_workers=1, pool=name, evaluation_pool=None))
        hourly = _hourly(one, use_gpu=fit.use_gpu, cpus_per_gpu=fit.cpus_per_gpu)
        return EvaluationPlace(resources, placed.labels | avoiding(avoid), hourly)

    def step(self) -> dict[str, Any]:
        if not self._has_begun:
            self._begin_or_fail()
        if self._failure is not None:
            if names_a_mistake(self._failure):
                return self._failed(self._failure)
            raise TrialFailed(self._failure)
        outcome = self._next_outcome()
        while self._begins_again(outcome):
            outcome = self._next_outcome()
        error = outcome.error if outcome.end is None else outcome.end.error
        if error is not None and outcome.tries_again is None:  # the driver cannot decide any more
            raise TrialFailed(error, None if outcome.end is None else outcome.end.failure)
        if error is not None:
            return self._failed(error)
        return dict(self._last) if outcome.end is None else self._over({STOPPED: True})

    def _failed(self, reason: str) -> dict[str, Any]:
        """Return the last result of a trial that has failed for good; its workers end before Tune receives the
        result."""
        self._slot.close()
        return self._over({FAILED: reason})

    def _over(self, how: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._last, **how, COMPLETED: False, "done": True}

    def _begins_again(self, outcome: Outcome) -> bool:
        """Restart from the last checkpoint with new workers if the trial continues; return whether it does.

        After a failure, the driver decides this. An end that is not a failure means that the workers' nodes or
        processes are about to end, that the trial gets another number of workers, that the broker's process has died,
        or that a device ran out of memory while workers wait for each other; in the last case the micro batch is
        halved, which changes no result.
        """
        end = outcome.end
        if not outcome.tries_again and (end is None or not (self._halves(end) or end.moved is not None)):
            return False
        self._slot.close()
        self._begin(end if end is not None and end.moved == BROKER_DIED else None)
        return True

    def _halves(self, end: Ended) -> bool:
        """Halve the micro batch for the next attempt, if this one ran out of memory; return whether it did."""
        half, largest = end.halved_to, self._largest_micro_batch
        if half is None or (largest is not None and half >= largest):
            return False
        self._largest_micro_batch = half
        return True

    def _next_outcome(self) -> Outcome:
        timeouts = self._hang_timeout_s, self._context.start_timeout_s
        outcome = self._context.broker.next_outcome(self._trial, self._attempt, *timeouts)
        self._last = outcome.result or self._last
        return outcome

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Switch this actor to the next trial, and begin it. Tune announces the trial's start only later, so the
        workers have left the previous trial by then."""
        self._take(new_config)
        self._begin_or_fail()
        return True

    def cleanup(self) -> None:
        """Free the workers."""
        self._slot.close()
        if self._is_elastic:
            self._context.broker.release_workers(self._trial)


def _last_delivered(begun: Begun, config: dict[str, Any], *, pauses: bool) -> int | None:
    """Return the step of the last report of earlier attempts that the driver has received.

    Args:
        pauses: Whether the scheduler pauses trials; a trial that continues then repeats the report at which it paused.
    """
    known = [step for step in (begun.delivered, config.get(LAST_DELIVERED)) if step is not None]
    if begun.lost_after is not None:
        return begun.lost_after
    return None if pauses else max(known, default=None)


def _hourly(config: SweepConfig, *, use_gpu: bool, cpus_per_gpu: float) -> dict[str, float]:
    """Return the hourly cost of a trial, by metric; empty without prices and pools."""
    held = reserved_per_trial(config, use_gpu=use_gpu, cpus_per_gpu=cpus_per_gpu)
    rates = {COST: config.hourly_cost(held)} if config.is_priced else {}
    return rates | ({GPU_HOURS: held.get("GPU", 0.0)} if rates or config.scaling.pools else {})
