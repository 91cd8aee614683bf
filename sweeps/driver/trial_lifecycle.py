"""Handling of starts, retries and ends of trials, as Tune reports them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sweeps.compose.composition import config_as_yaml
from sweeps.constants import (
    COMPLETED,
    LAST_DELIVERED,
    MAY_PAUSE,
    PARAMETERS,
    POOL,
    REPEAT_OF,
    STAGE,
    STEP,
    STOPPED,
    TRIAL,
)
from sweeps.driver.sweep_state import SweepState
from sweeps.driver.trial_status import State, TrialStatus
from sweeps.driver.worker_events import WorkerEvents
from sweeps.errors import UserError
from sweeps.runtime.reservation import reserved_per_trial
from sweeps.texts.wording import no_finite_value
from sweeps.tracking.mlflow_texts import describe
from sweeps.tracking.record import INTERRUPTED

if TYPE_CHECKING:
    from sweeps.driver.report_decisions import Decisions
    from sweeps.runtime.driver_side import DriverSide
    from sweeps.tracking.recorder import Recorder


Change = Callable[[], None]
"""Function that shows or records a change of a trial that Tune has reported."""


class TrialLifecycle:
    """Follows the trials of a sweep from start to end.

    Tune's callbacks come on the driver's main thread, often before the workers' last events. So changes are queued, and
    the event loop processes them after those events.
    """

    def __init__(
        self,
        state: SweepState,
        recorder: Recorder,
        worker_events: WorkerEvents,
        decisions: Decisions,
        broker: DriverSide,
    ):
        self._state, self._recorder, self._worker_events = state, recorder, worker_events
        self._decisions, self._broker = decisions, broker
        self._queue: list[Change] = []

    # --- called by Tune's callbacks ---------------------------------------------------------------------------

    def started(self, config: dict[str, Any], attempt: int) -> None:
        """Handle a trial's start: its first start, or one after a failure or a pause.

        Args:
            config: The trial's config in Tune.
            attempt: Number of the trial's actor in this session, from 1.
        """
        trial, parameters, pool = config[TRIAL], config[PARAMETERS], config.get(POOL)
        repeat_of: str | None = config.get(REPEAT_OF)
        stage: int | None = config.get(STAGE)
        state = self._state
        with state.lock:
            status = state.trials.setdefault(trial, TrialStatus(trial, parameters, repeat_of=repeat_of, stage=stage))
            attempt += status.retries
            after_pause = status.state == "running" and status.attempt == attempt
            status.state, status.attempt, status.ending = "running", attempt, False
            own = state.composition.trial(parameters).in_pool(pool)
            fit = state.fit.of(pool)
            status.last_step = own.loop.max_steps if own.loop is not None else None
            needs = reserved_per_trial(own, use_gpu=fit.use_gpu, cpus_per_gpu=fit.cpus_per_gpu)
            status.needs = status.holds = needs
            status.num_workers = own.scaling.min_workers
            status.pool, status.hourly_cost = pool, own.hourly_cost(needs)
            if after_pause:
                return
            status.assigned, status.training_since = time.time(), None
            attempt += status.earlier_attempts
            # Within the lock, so that events of its workers find the trial's run.
            self._recorder.trials.start(trial, parameters, config_as_yaml(own), attempt, pool, repeat_of, stage)
            self._worker_events.take_early(trial)
        if state.earlier is not None and status.attempt == 1:
            # Where a scheduler may stop it, workers post again the reports on which it has not decided. One that may
            # be paused waits for each decision, and its workers only repeat the last report.
            may_pause = config.get(MAY_PAUSE) is True
            is_judged = repeat_of is None and not may_pause and state.composition.config.search.judges_trials
            self._worker_events.take_report_log(trial, config.get(LAST_DELIVERED) if is_judged else None)
        again = f", attempt {attempt}" if attempt > 1 else ""
        where = f" in pool {pool}" if pool is not None else ""
        memory = state.memory.describe(parameters) if state.memory is not None and stage is None else ""
        details = "; ".join(part for part in (describe(parameters), memory) if part)
        self._put(partial(state.announce, f"trial {trial} started{again}{where}{f': {details}' if details else ''}"))

    def retried(self, trial: str, reason: str) -> None:
        """Handle the start of a trial's next actor after the last one has died; the reason is Tune's, which is shown
        only if the workers have given none."""

        def announce() -> None:
            status = self._state.trials.get(trial)  # None: the actor died before Tune announced the trial's start
            failure = (status.failure if status is not None else None) or f"trial {trial}: {reason}"
            self._state.announce(f"{failure}; it is tried again, from its newest checkpoint if it has one")

        self._put(announce)

    def ended(self, config: dict[str, Any], result: dict[str, Any], error: str | None = None) -> None:
        """Handle a trial's end."""
        trial, state = config[TRIAL], self._end_state(result, error)
        known = self._state.trials.get(trial)
        if known is None or (known.state == "waiting" and state == "failed"):  # Tune has not announced its start
            self.started(config, 1)
        with self._state.lock:
            status = self._state.trials[trial]
            if status.state == "waiting" and state in ("pruned", "stopped"):  # paused since an earlier session
                if state == "pruned" or status.is_unwanted:
                    self.catch_up(trial, status.parameters, state, None, None, status.stage)
                return
            status.ending = True
            self._decisions.done(trial)
            for_good = state == "stopped" and (status.is_unwanted or not self._state.shutdown.interrupts_trials())
        last_step = result.get(STEP, 0) if state == "pruned" else None
        self._put(partial(self._finish, trial, state, error, last_step, for_good=for_good))

    def keep(self, trial: str) -> None:
        """Let `resume` continue a trial whose failure was recorded."""
        self._put(partial(self._keep, trial))

    def all_ended(self) -> None:
        """End the trials that Tune stopped together, without a callback for each."""
        with self._state.lock:
            for status in self._state.all_trials:
                if status.state == "running" and not status.ending:
                    self.ended({TRIAL: status.trial}, {})

    def _end_state(self, result: dict[str, Any], error: str | None) -> State:
        if error is not None:
            return "failed"
        if result.get(COMPLETED):
            return "finished"
        if result.get(STOPPED) or self._state.shutdown.stops_trials():
            return "stopped"
        return "pruned"

    # --- called on other threads ------------------------------------------------------------------------------

    def stop(self, trial: str) -> None:
        """Stop one trial for good, whether it runs, is paused or waits for another attempt.

        Raises:
            UserError: The trial has ended.
        """
        with self._state.lock:
            status = self._state.trials.get(trial)
            if status is None or status.state not in ("running", "waiting") or status.ending:
                known = f": it is {status.state}" if status else ""
                raise UserError(f"trial {trial} of {self._state.sweep} is not running{known}")
            status.is_unwanted = True
        self._broker.stop_for_good(trial)

    def catch_up(
        self,
        trial: str,
        parameters: dict[str, Any],
        state: State,
        error: str | None,
        last_step: int | None,
        stage: int | None = None,
    ) -> None:
        """Record the end of a trial whose driver died before recording it; see ``_finish``."""
        status = self._state.trials.setdefault(trial, TrialStatus(trial, parameters, stage=stage))
        if status.state != "waiting":
            return
        status.earlier_attempts = max(1, status.earlier_attempts)
        own_config = self._state.composition.as_yaml(parameters)
        self._recorder.trials.start(trial, parameters, own_config, status.earlier_attempts, stage=stage)
        self._worker_events.take_report_log(trial, last_step)
        self._finish(trial, state, error, last_step, for_good=state == "stopped")

    # --- the queue --------------------------------------------------------------------------------------------

    def _put(self, change: Change) -> None:
        with self._state.lock:
            self._queue.append(change)

    def queued(self) -> list[Change]:
        with self._state.lock:
            changes, self._queue = self._queue, []
        return changes

    @property
    def is_idle(self) -> bool:
        """Whether the queue is empty."""
        return not self._queue

    def process(self, changes: list[Change]) -> None:
        """Show and record changes, and remove them from the list one by one.

        Raises:
            StorageFailed: An end cannot be recorded; it is then the first change that remains in the list.
        """
        while changes:
            changes[0]()
            del changes[0]

    def _keep(self, trial: str) -> None:
        with self._state.lock:
            status = self._state.trials[trial]
            status.state = "stopped"
        self._recorder.trials.end(trial, "stopped", status.step, status.attempts)
        self._state.announce(f"trial {trial} can continue from step {status.step}")

    def _finish(self, trial: str, end: State, error: str | None, last_step: int | None, *, for_good: bool) -> None:
        """Record and show the end of a trial.

        Args:
            trial: Id of the trial.
            end: Final state of the trial.
            error: Reason for its failure.
            last_step: Last step that counts; None: all steps count.
            for_good: Whether a person has stopped the trial for good, so that ``resume`` does not continue it.
        """
        state = self._state
        with state.lock:
            status = state.trials[trial]
            if status.has_lost_events or end == "failed" or for_good:  # its workers may not have sent all
                self._worker_events.take_report_log(trial, last_step, after=status.step)
            status.state, status.error = end, error
            is_best = state.is_in_front(status)
            spent = state.ledger.of(trial).account(time.time())
        if spent.total or status.step:
            self._recorder.trials.log_account(trial, status.step, spent)
        self._recorder.trials.attach_logs(trial)
        self._recorder.trials.end(trial, end, status.step, status.attempts, error, for_good=for_good)
        ends_with_sweep = end == "stopped" and not for_good and state.shutdown.status is not None
        shown = INTERRUPTED if ends_with_sweep else end
        text = f"trial {trial} {shown} at step {status.step}"
        if status.values is not None:
            text += f", {state.describe_values(status.values)}"
            if status.value_step not in (None, status.step):
                text += f" at step {status.value_step}"
        elif status.has_reported and error is None:
            text += f"; it {no_finite_value(state.objectives.metrics)}"
        if status.violation is not None:
            text += f"; {status.violation}"
        if error is not None:
            text += f": {error}"
        if is_best:
            text += " (best so far)" if len(state.objectives.metrics) == 1 else " (on the Pareto front)"
        state.announce(text)
