"""Tune callbacks: report the lifecycle of trials, stop all trials when the sweep ends early, and disable Tune's
progress output."""

from __future__ import annotations

import time
from typing import Any

from ray import tune
from ray.tune.experiment import Trial as TuneTrial

from sweeps.constants import FAILED, TRIAL
from sweeps.driver.confirmation_searcher import RepeatSearcher
from sweeps.driver.driver_progress import SEARCHES_WITHIN_S, expect_progress
from sweeps.driver.early_end import Shutdown
from sweeps.driver.not_pickled import NotPickled
from sweeps.driver.retries import failure_reason
from sweeps.driver.session import Session
from sweeps.driver.sweep_searcher import SweepSearcher
from sweeps.runtime.slot_queue import IDLE_S


class LifecycleCallback(NotPickled, tune.Callback):
    """Reports starts, retries and ends of trials to the session."""

    def __init__(self, session: Session, searcher: SweepSearcher | RepeatSearcher):
        self._session, self._searcher = session, searcher
        self._search_over: bool | None = None  # a search before this one in the same session may have ended
        self._is_elastic = session.state.composition.config.scaling.is_elastic
        self._room = (0, 0, 0)
        self._paused_since: dict[str, float] = {}

    def on_step_end(self, iteration: int, trials: list[TuneTrial], **info: Any) -> None:
        expect_progress(SEARCHES_WITHIN_S)
        over = self._searcher.ended_because is not None
        if over is not self._search_over:
            self._search_over = over
            self._session.broker.search_over(over)
        if self._is_elastic:
            self._set_room(trials)

    def _set_room(self, trials: list[TuneTrial]) -> None:
        """Tell the broker the resources that elastic trials share, if they have changed. Trials that stay paused leave
        theirs to the others, which give some back when one continues."""
        state, now = self._session.state, time.monotonic()
        paused = [trial.trial_id for trial in trials if trial.status == TuneTrial.PAUSED]
        self._paused_since = {trial: self._paused_since.get(trial, now) for trial in paused}
        stay_paused = sum(now - since >= IDLE_S for since in self._paused_since.values())
        with state.lock:
            unfinished = state.unfinished_count(is_over=bool(self._search_over))
            expected = min(state.concurrent, unfinished - stay_paused)
            room = state.places, expected, unfinished - expected
        if room != self._room:
            self._room = room
            self._session.broker.set_room(*room)

    def on_trial_start(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        self._searcher.tune_trials[trial.trial_id] = trial
        self._session.lifecycle.started(trial.config, trial.num_failures + 1)

    def on_trial_complete(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        self._session.lifecycle.ended(trial.config, trial.last_result, error=trial.last_result.get(FAILED))

    def on_trial_recover(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        self._session.lifecycle.retried(trial.config[TRIAL], failure_reason(trial))

    def on_trial_error(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        if self._session.state.fit.lanes > 1:
            self._session.broker.stop(trial.config[TRIAL])
        if self._is_elastic:
            self._session.broker.abandon_workers(trial.config[TRIAL])
        self._session.lifecycle.ended(trial.config, trial.last_result, error=failure_reason(trial))


class ShutdownStopper(NotPickled, tune.Stopper):
    """Stops all trials when the sweep ends early."""

    def __init__(self, shutdown: Shutdown):
        self._shutdown = shutdown

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._shutdown.status is not None


class NoReporter(tune.ProgressReporter):
    """Progress reporter of Tune that prints nothing, because Sweeps shows the progress itself. In a notebook, Tune
    would clear the output of the cell in which the sweep is shown."""

    def should_report(self, trials: list[TuneTrial], done: bool = False) -> bool:
        return False

    def report(self, trials: list[TuneTrial], done: bool, *sys_info: str) -> None:
        """Do nothing; Tune never calls this, because ``should_report`` is always false."""
