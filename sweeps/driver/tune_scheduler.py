"""Tune's scheduler of a sweep: does in Tune what a scheduler of the search decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from sweeps.compat import ray_tune
from sweeps.constants import COMPLETED, LAST_DELIVERED, MAY_PAUSE, ORIGIN, PARAMETERS, STEP, TRIAL
from sweeps.driver.not_pickled import NotPickled
from sweeps.driver.pause_aware_limiter import PauseAwareLimiter
from sweeps.search.schedulers.pausing import PausingScheduler
from sweeps.search.schedulers.scheduler import Exploit, Result, Scheduler, Verdict

STATUSES: dict[str, Literal["waiting", "running", "paused", "ended"]] = {
    Trial.PENDING: "waiting",
    Trial.RUNNING: "running",
    Trial.PAUSED: "paused",
    Trial.TERMINATED: "ended",
    Trial.ERROR: "ended",
}

TUNES = {
    Verdict.CONTINUE: TrialScheduler.CONTINUE,
    Verdict.PAUSE: TrialScheduler.PAUSE,
    Verdict.STOP: TrialScheduler.STOP,
}
"""Tune's own constants, which it compares by identity."""


class TuneTrial:
    """A trial of Tune, as schedulers of the search see it."""

    def __init__(self, trial: Trial, controller: Any):
        self.trial, self._controller = trial, controller
        self.id = str(trial.config[TRIAL])

    @property
    def parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = self.trial.config[PARAMETERS]
        return parameters

    @property
    def num_exploits(self) -> int:
        return int(self.trial.config[ORIGIN].num_exploits) if ORIGIN in self.trial.config else 0

    @property
    def status(self) -> Literal["waiting", "running", "paused", "ended"]:
        return STATUSES[self.trial.status]

    def save(self, result: Result) -> Callable[[], int | None] | None:
        requested = ray_tune.request_checkpoint(self._controller, self.trial, result)
        return None if requested is None else lambda: _step(ray_tune.checkpoint_metrics(requested))


def _step(metrics: Result | None) -> int | None:
    return None if metrics is None else metrics[STEP]


class TuneScheduler(NotPickled, FIFOScheduler):
    """Asks a scheduler of the search, and lets Tune do what it decides.

    When the search was interrupted to be resumed later, a scheduler that pauses trials decides nothing any more: its
    trials stay as they are until then.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        limiter: PauseAwareLimiter,
        *,
        exploited: Callable[[Exploit], None],
        interrupted: Callable[[], bool],
    ):
        """
        Args:
            scheduler: Decides.
            limiter: Gives Tune new trials.
            exploited: Called with every trial that continues from another trial's state.
            interrupted: Whether the search was interrupted, to be resumed later.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._scheduler, self._limiter, self._places = scheduler, limiter, limiter.places
        self._exploited, self._interrupted = exploited, interrupted
        self._trials: dict[str, TuneTrial] = {}

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        self._set_may_pause(trial)
        if self._scheduler.add(self._seen(trial, tune_controller), self._places):
            # Tune has not started the trial. Should it be stopped before that, Tune needs its folder and a result.
            trial.set_status(Trial.PAUSED)  # type: ignore[no-untyped-call]
            trial.init_local_path()  # type: ignore[no-untyped-call]
            trial.update_last_result({STEP: trial.config.get(LAST_DELIVERED, 0)})  # type: ignore[no-untyped-call]

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        self._limiter.on_trial_result(trial.trial_id, result)  # it is in the study before anything is decided on it
        if self._leaves_all_as_it_is():
            return TrialScheduler.CONTINUE
        decided = self._scheduler.report(self._seen(trial, tune_controller), result, self._places)
        if isinstance(decided, Verdict):
            return TUNES[decided]
        tune_controller.pause_trial(trial, should_checkpoint=False)
        config = {TRIAL: decided.trial, PARAMETERS: dict(decided.parameters), ORIGIN: decided.origin}
        trial.set_config(config)  # type: ignore[no-untyped-call]
        ray_tune.forget_checkpoint(trial)  # the trial's folder holds the checkpoint that it continues from
        self._exploited(decided)
        return TrialScheduler.NOOP

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        if result.get(COMPLETED) or not self._leaves_all_as_it_is():
            self._scheduler.complete(self._seen(trial, tune_controller), result, self._places)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        if not self._leaves_all_as_it_is():
            self._scheduler.leave(self._seen(trial, tune_controller), self._places)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Remove a failed trial; Tune adds it again at once if it is started again."""
        self.on_trial_remove(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """The next trial that waits for its workers, or that was paused and goes on."""
        if not isinstance(self._scheduler, PausingScheduler):
            chosen: Trial | None = super().choose_trial_to_run(tune_controller)
            return chosen
        trials = tune_controller.get_trials()
        if trials and self._limiter.stay_open():
            # Tune keeps one idle actor. Here as many trials as run at once may be paused together and resumed at once.
            ray_tune.keep_idle_actors(tune_controller, trials[0], self._places.max_concurrent)
        live = [self._seen(trial, tune_controller) for trial in tune_controller.get_live_trials()]
        if self._interrupted():  # paused trials stay paused until the sweep is resumed
            for paused in live:
                if paused.status == "paused":
                    tune_controller.stop_trial(paused.trial)
            return None
        turn = self._scheduler.next(live, self._places, is_over=self._limiter.is_over)
        for stopped in turn.stopped:
            tune_controller.stop_trial(self._trials[stopped.id].trial)
        if turn.resumed is None:
            return None
        resumed = self._trials[turn.resumed.id].trial
        self._set_may_pause(resumed)
        return resumed

    def debug_string(self) -> str:
        return type(self._scheduler).__name__

    def _seen(self, trial: Trial, tune_controller: Any) -> TuneTrial:
        """A trial of Tune as the scheduler sees it."""
        number = trial.config[TRIAL]
        if number not in self._trials:
            self._trials[number] = TuneTrial(trial, tune_controller)
        return self._trials[number]

    def _set_may_pause(self, trial: Trial) -> None:
        if self._scheduler.may_pause is not None:
            trial.config[MAY_PAUSE] = self._scheduler.may_pause

    def _leaves_all_as_it_is(self) -> bool:
        return isinstance(self._scheduler, PausingScheduler) and self._interrupted()
