"""Base of the schedulers that pause trials and resume them later."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ray.tune.experiment import Trial

from sweeps.compat import ray_tune
from sweeps.constants import LAST_DELIVERED, STEP, TRIAL
from sweeps.search.schedulers.decisions import DecisionLog
from sweeps.search.schedulers.pause_aware_limiter import PauseAwareLimiter
from sweeps.search.schedulers.recorded import RecordedScheduler

RESUMED = {"event": "resumed"}
"""The decision that a paused trial continues."""


class PausingScheduler(RecordedScheduler, ABC):
    """A scheduler that pauses trials, for a ``PauseAwareLimiter``: Tune starts new trials by itself, and asks the
    scheduler for paused ones."""

    resumes_first = True
    """Whether paused trials run before new ones."""

    def __init__(self, decisions: DecisionLog | None = None):
        super().__init__(decisions)
        self._paused: set[str] = set()
        """Numbers of the paused trials."""
        self._not_restored = set(self._decisions.trials)
        """Numbers of the trials of earlier sessions that were not added yet."""
        self._none_to_resume: tuple[object, ...] = ()
        """State of the search when no trial was resumed the last time."""

    def restore_trial(self, tune_controller: Any, trial: Trial) -> bool:
        """Pause a trial that an earlier session had paused, or that exceeds the number of trials at a time; call this
        when a trial is added. Returns whether the trial is of an earlier session."""
        number = trial.config[TRIAL]
        if number not in self._not_restored:
            return False
        self._not_restored.remove(number)
        limiter = limiter_of(tune_controller)
        if number in self._paused or limiter.capacity < 0:
            # Tune has not started the trial. Should it be stopped before that, Tune needs its folder and a result.
            trial.set_status(Trial.PAUSED)  # type: ignore[no-untyped-call]
            trial.init_local_path()  # type: ignore[no-untyped-call]
            trial.update_last_result({STEP: trial.config.get(LAST_DELIVERED, 0)})  # type: ignore[no-untyped-call]
            limiter.pause(trial.trial_id)
            limiter.hold_new_trials()
        return True

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """The next paused trial to resume, if another trial may run."""
        limiter = limiter_of(tune_controller)
        trials: list[Trial] = tune_controller.get_trials()
        if trials and limiter.stay_open():
            # Tune keeps one idle actor. Here as many trials as run at once may be paused together and resumed at once.
            ray_tune.keep_idle_actors(tune_controller, trials[0], limiter.max_concurrent)
        live = tune_controller.get_live_trials()
        paused: list[Trial] = [trial for trial in live if trial.status == Trial.PAUSED]
        if self._decisions.is_resumed_later():  # paused trials stay paused until the sweep is resumed
            for trial in paused:
                tune_controller.stop_trial(trial)
            return None
        paused_ids = {trial.trial_id for trial in paused}
        limiter.set_paused(paused_ids)
        is_complete = limiter.is_over or (
            limiter.is_empty and all(trial.status == Trial.PAUSED or trial.is_finished() for trial in live)
        )
        # Most events are reports between rungs, and ``ready`` looks at all paused trials.
        state = self._decisions.count, limiter.capacity, limiter.is_empty, is_complete, paused_ids
        if state == self._none_to_resume and not self.depends_on_time:
            return None
        ready = self.ready(tune_controller, paused, complete=is_complete)
        limiter.hold_new_trials(self.resumes_first and bool(ready))
        if not ready or limiter.capacity < 1 or not (self.resumes_first or limiter.is_empty or is_complete):
            self._none_to_resume = state
            return None
        limiter.unpause(ready[0].trial_id)
        self._decisions.record(ready[0].config[TRIAL], RESUMED)
        self._paused.discard(ready[0].config[TRIAL])
        return ready[0]

    @property
    def depends_on_time(self) -> bool:
        """Whether ``ready`` depends on more than the decisions and which trials are paused, as on the time that is
        left; then it is called after each event."""
        return True

    @abstractmethod
    def ready(self, tune_controller: Any, paused: list[Trial], *, complete: bool) -> list[Trial]:
        """The paused trials that may be resumed, in this order.

        Args:
            tune_controller: Tune's controller.
            paused: All paused trials.
            complete: Whether no further trial will be added.
        """


def limiter_of(tune_controller: Any) -> PauseAwareLimiter:
    """The limiter that Tune's controller asks for new trials."""
    limiter: PauseAwareLimiter = tune_controller.search_alg.searcher
    return limiter
