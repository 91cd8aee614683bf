"""A trial: the Tune trainable that hands a sampled config to a slot and passes on what its workers report."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.result import AUTO_RESULT_KEYS

from sweeps.compose import Composition
from sweeps.constants import COMPLETED, EVALUATIONS, HEARD, ORIGIN, PARAMETERS, STEP, STOPPED, TRIAL
from sweeps.errors import TrialFailed
from sweeps.runtime.broker import Ended, Report
from sweeps.runtime.checkpoint_layout import Origin, checkpoint_folder, pin
from sweeps.runtime.worker import Assignment
from sweeps.runtime.worker_group import Slot, Workers
from sweeps.trial_files import logs_folder

TRIAL_RESOURCES = {"CPU": 0, "node:__internal_head__": 0.0001}
"""A trial's actor only waits. Tune refuses to ask for nothing at all, so it asks for a grain of what every Ray
cluster has on its head node, which workers never ask for."""


@dataclass(frozen=True)
class TrialContext:
    """What every trial of a sweep shares."""

    composition: Composition
    folder: str
    """Absolute folder of the sweep."""
    use_gpu: bool
    mailbox: Any

    @property
    def trials(self) -> Path:
        """Folder of all trials' checkpoints."""
        return Path(self.folder) / "trials"


class Trial(tune.Trainable):
    """One point of the space, trained. ``step()`` waits for the workers' next report.

    It asks Tune for no resources: its workers' placement group does, and the sweep bounds how many trials run at
    once, so that no two half-placed trials can wait for each other.
    """

    def setup(self, config: dict[str, Any], context: TrialContext) -> None:  # type: ignore[override]  # Tune's way
        self._context = context
        self._slot: Slot | None = None
        self._begin_or_fail(config)

    def _begin_or_fail(self, config: dict[str, Any]) -> None:
        """Tune retries a trial that fails in ``step()``, and none that fails before: so the failure waits."""
        self._failure: str | None = None
        self._largest_micro_batch: int | None = None
        try:
            self._begin(config)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this trial's failure
            self._failure = f"{type(error).__name__}: {error}"

    def _begin(self, config: dict[str, Any]) -> None:
        """Give the trial to the slot at hand, if it is warm and fits, or to a new one."""
        context = self._context
        self._config = config
        self._trial: str = config[TRIAL]
        sweep = context.composition.trial(config[PARAMETERS])
        self._metric = sweep.search.metrics[0]
        self._eval_every = sweep.train.eval_every if sweep.train is not None else 1  # a function counts by itself
        self._hang_timeout_s = sweep.scaling.hang_timeout_s
        self._last: dict[str, Any] = {}
        self._known_step = 0
        origin: Origin | None = config.get(ORIGIN)
        self._lineage = origin.lineage if origin is not None else 0
        self._is_copied = sweep.search.copies_trials
        workers = Workers(
            num_workers=sweep.scaling.num_workers,
            use_gpu=context.use_gpu,
            resources_per_worker=worker_resources(sweep.scaling.resources_per_worker),
            placement=sweep.scaling.placement,
            accelerator_type=sweep.scaling.accelerator_type,
            labels=sweep.scaling.labels,
            storage_path=str(Path(context.folder) / "ray_train"),
        )
        if self._slot is not None and not (sweep.warm and self._slot.workers == workers and self._slot.release()):
            self.cleanup()
        attempt, handed = ray.get(context.mailbox.begin.remote(self._trial, sweep.search.judges_trials))
        heard = max((step for step in (handed, config.get(HEARD)) if step is not None), default=None)
        if self._slot is None:
            self._slot = Slot(f"slot-{self._trial}-{attempt}", workers, context.mailbox)
        self._slot.assign(
            Assignment(
                trial=self._trial,
                attempt=attempt,
                training=sweep.training(),
                metric=sweep.search.metrics[0],
                mode=sweep.search.modes[0],
                checkpoint_folder=str(checkpoint_folder(context.trials, self._trial, self._lineage)),
                log_folder=str(logs_folder(Path(context.folder), self._trial)),
                origin=origin,
                largest_micro_batch=self._largest_micro_batch,
                waits=sweep.search.pauses_trials,
                heard=None if sweep.search.pauses_trials else heard,
                mailbox=context.mailbox,
                holds_checkpoints=sweep.tracking.checkpoints == "copy" and bool(sweep.checkpoint.keep),
            )
        )

    def step(self) -> dict[str, Any]:
        if self._failure is not None:
            raise TrialFailed(self._failure)
        event = self._next_report()
        while self._is_known(event) or self._goes_on_with_half(event):
            event = self._next_report()
        if isinstance(event, Ended):
            if event.error is not None:
                raise TrialFailed(event.error, event.failure)
            return {**self._last, STOPPED: True, COMPLETED: False, "done": True}
        if self._metric not in event.metrics:
            raise TrialFailed(
                f"search.metric={self._metric} is not among the reported metrics: {', '.join(sorted(event.metrics))}"
            )
        self._last = {
            **{name: value for name, value in event.metrics.items() if name not in AUTO_RESULT_KEYS},
            STEP: event.step,
            EVALUATIONS: math.ceil(event.step / self._eval_every),
            **event.progress,
            COMPLETED: event.done,
            "done": event.done,
        }
        return dict(self._last)

    def _is_known(self, event: Report | Ended) -> bool:
        """It was paused at this report, or has gone on from before it: Tune has heard of it."""
        return isinstance(event, Report) and event.step <= self._known_step and not event.done

    def _goes_on_with_half(self, event: Report | Ended) -> bool:
        """A device ran out of memory where workers wait for each other. They begin again from the last checkpoint with
        half the micro batch, which changes nothing else: so it is no failure of the trial."""
        half = event.halved_to if isinstance(event, Ended) else None
        if half is None or (self._largest_micro_batch is not None and half >= self._largest_micro_batch):
            return False
        self._largest_micro_batch = half
        last, known_step = self._last, max(self._known_step, self._last.get(STEP, 0))
        self.cleanup()
        self._begin(self._config)
        self._last, self._known_step = last, known_step
        return True

    def _next_report(self) -> Report | Ended:
        event: Report | Ended = ray.get(self._context.mailbox.next_report.remote(self._trial, self._hang_timeout_s))
        return event

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """The workers have saved at their last report, and wait. Tune's own checkpoint says how far Tune knows the
        trial; with schedulers that let trials go on from others' states, the workers' is kept for that."""
        step = self._last.get(STEP, 0)
        if self._is_copied and not pin(self._context.trials, self._trial, self._lineage, step):
            raise TrialFailed(
                f"the report of step {step} came without a checkpoint, from which other trials could go on; with this "
                "search.scheduler.kind every report needs one"
            )
        return {TRIAL: self._trial, ORIGIN: self._lineage, STEP: step}

    def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None:
        """Training goes on from the newest checkpoint in its folder, and repeats the report of that; Tune shall not
        hear it again. (A checkpoint of another trial says nothing of this one.)"""
        if checkpoint and (checkpoint[TRIAL], checkpoint[ORIGIN]) == (self._trial, self._lineage):
            self._known_step = checkpoint[STEP]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next trial in the same actor."""
        self._begin_or_fail(new_config)
        return True

    def cleanup(self) -> None:
        """Give the workers back."""
        if self._slot is not None:
            self._slot.close()
            self._slot = None


def worker_resources(resources: dict[str, float]) -> dict[str, float]:
    """What one worker reserves besides its GPU: one CPU, if nothing else was asked for."""
    return {"CPU": 1, **resources}
