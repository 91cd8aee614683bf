"""Tune scheduler that makes Tune execute the decisions of a sweep's own scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from sweeps.compat import ray_tune
from sweeps.constants import COMPLETED, FAILED, LAST_DELIVERED, MAY_PAUSE, ORIGIN, PARAMETERS, STEP, STOPPED, TRIAL
from sweeps.driver.not_pickled import NotPickled
from sweeps.driver.pause_aware_limiter import PauseAwareLimiter
from sweeps.driver.session import Session
from sweeps.search.schedulers.pausing import PausingScheduler
from sweeps.search.schedulers.scheduler import Exploit, Scheduler, Verdict

if TYPE_CHECKING:
    from sweeps.driver.optuna_searcher import OptunaSearcher

STATUSES: dict[str, Literal["waiting", "running", "paused", "ended"]] = {
    Trial.PENDING: "waiting",
    Trial.RUNNING: "running",
    Trial.PAUSED: "paused",
    Trial.TERMINATED: "ended",
    Trial.ERROR: "ended",
}


class TuneTrial:
    """Adapter that shows a Tune trial to a sweep's scheduler."""

    def __init__(self, trial: Trial):
        self.trial = trial
        self.id = str(trial.config[TRIAL])
        self.decided: Verdict | Exploit = Verdict.CONTINUE
        """Decision that Tune has not carried out yet."""

    @property
    def parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = self.trial.config[PARAMETERS]
        return parameters

    @property
    def num_exploits(self) -> int:
        return int(self.trial.config[ORIGIN].num_exploits) if ORIGIN in self.trial.config else 0

    @property
    def status(self) -> Literal["waiting", "running", "paused", "ended"]:
        if self.decided is Verdict.CONTINUE:
            return STATUSES[self.trial.status]
        return "ended" if self.decided is Verdict.STOP else "paused"


class TuneScheduler(NotPickled, FIFOScheduler):
    """Asks the sweep's scheduler for a decision when a report is recorded, and lets Tune execute the decision when the
    trial's actor returns.

    After an interruption of the search, a scheduler that pauses trials makes no further decisions: its trials keep
    their state until the search is resumed.
    """

    def __init__(self, scheduler: Scheduler, limiter: PauseAwareLimiter, session: Session):
        super().__init__()  # type: ignore[no-untyped-call]
        self._scheduler, self._limiter, self._places = scheduler, limiter, limiter.places
        self._decisions, self._state = session.decisions, session.state
        self._lock = session.state.lock
        """Held during each call of the scheduler, since several threads of the driver call it."""
        self._trials: dict[str, TuneTrial] = {}
        if isinstance(scheduler, PausingScheduler):
            limiter.stay_open()

    def decide(self, number: str, result: Mapping[str, Any]) -> Verdict | Exploit:
        """Decide about a trial that has reported. The report is already in the study, and so is the decision when this
        returns.

        Raises:
            TrialFailed: The scheduler cannot continue with the trial.
        """
        with self._lock:
            trial = self._trials.get(number)
            # A trial of an earlier search in this session, or one that failed for good and whose workers still report.
            if trial is None or not self._limiter.is_alive(trial.trial.trial_id):
                return Verdict.CONTINUE
            self._limiter.on_trial_result(trial.trial.trial_id, dict(result))
            if self._leaves_all_as_it_is():
                return Verdict.CONTINUE
            trial.decided = self._scheduler.report(trial, result, self._places)
            if isinstance(trial.decided, Exploit):
                cast("OptunaSearcher", self._limiter.searcher).exploited(trial.decided)
            return trial.decided

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        self._set_may_pause(trial)
        if isinstance(self._scheduler, PausingScheduler):
            # Tune keeps one idle actor. Here all trials that run at once may be paused together and resumed at once.
            ray_tune.keep_idle_actor(tune_controller, trial)
        with self._lock:
            is_paused = self._scheduler.add(self._seen(trial), self._places)
        if is_paused:
            # Tune has not started the trial. If it is stopped before that, Tune needs its folder and a result.
            trial.set_status(Trial.PAUSED)  # type: ignore[no-untyped-call]
            trial.init_local_path()  # type: ignore[no-untyped-call]
            trial.update_last_result({STEP: trial.config.get(LAST_DELIVERED, 0)})  # type: ignore[no-untyped-call]

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Execute the decision about the report with which the trial's actor has returned."""
        with self._lock:
            seen = self._seen(trial)
            decided, seen.decided = seen.decided, Verdict.CONTINUE
            self._decisions.done(seen.id)
        if decided is Verdict.CONTINUE:
            return TrialScheduler.CONTINUE
        if decided is Verdict.STOP:
            return TrialScheduler.STOP
        # The workers have saved the trial. Tune's own checkpoint would need a folder that the driver and the trial's
        # actor share, which clusters with an object store do not have.
        tune_controller.pause_trial(trial, should_checkpoint=False)
        if isinstance(decided, Exploit):
            config = {TRIAL: decided.trial, PARAMETERS: dict(decided.parameters), ORIGIN: decided.origin}
            trial.set_config(config)  # type: ignore[no-untyped-call]
        return TrialScheduler.NOOP

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        if FAILED in result:
            self.on_trial_remove(tune_controller, trial)
        elif result.get(COMPLETED) or not self._leaves_all_as_it_is():
            with self._lock:
                self._scheduler.complete(self._seen(trial), result, self._places)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        if not self._leaves_all_as_it_is():
            with self._lock:
                self._scheduler.leave(self._seen(trial), self._places)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Remove a trial that has failed for good. Tune also calls this before it adds a retried trial again, which
        keeps its place and its values."""
        if trial.status != Trial.ERROR:
            self.on_trial_remove(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Return the next trial that waits for its workers, or that was paused and continues."""
        if not isinstance(self._scheduler, PausingScheduler):
            chosen: Trial | None = super().choose_trial_to_run(tune_controller)
            return chosen
        # Tune keeps failed trials among the live ones; a decision about such a trial is never carried out.
        live = [self._seen(trial) for trial in tune_controller.get_live_trials() if not trial.is_finished()]
        paused = [each for each in live if each.trial.status == Trial.PAUSED]
        if self._state.shutdown.interrupts_trials():  # paused trials stay paused until the sweep is resumed
            for each in paused:
                tune_controller.stop_trial(each.trial)
            return None
        for unwanted in [each for each in paused if self._state.is_unwanted(each.id)]:
            self._stop_unwanted(tune_controller, unwanted)
            live.remove(unwanted)
        with self._lock:
            if any(each.decided is not Verdict.CONTINUE for each in live):
                return None  # Tune asks again when it has done that
            turn = self._scheduler.next(live, self._places, is_over=self._limiter.is_over)
        for stopped in turn.stopped:
            tune_controller.stop_trial(self._trials[stopped.id].trial)
        if turn.resumed is None:
            return None
        resumed = self._trials[turn.resumed.id].trial
        self._set_may_pause(resumed)
        return resumed

    def _stop_unwanted(self, tune_controller: Any, paused: TuneTrial) -> None:
        """Stop a paused trial that a person has asked to stop; it has no workers to which the request could be sent."""
        trial = paused.trial
        trial.update_last_result({**trial.last_result, STOPPED: True})  # type: ignore[no-untyped-call]
        self.on_trial_remove(tune_controller, trial)
        # Tune would tell the searcher without the result.
        self._limiter.on_trial_complete(trial.trial_id, dict(trial.last_result))
        tune_controller.stop_trial(trial)

    def _seen(self, trial: Trial) -> TuneTrial:
        """Return the adapter of a Tune trial for the scheduler."""
        return self._trials.setdefault(trial.config[TRIAL], TuneTrial(trial))

    def _set_may_pause(self, trial: Trial) -> None:
        if self._scheduler.may_pause is not None:
            trial.config[MAY_PAUSE] = self._scheduler.may_pause

    def _leaves_all_as_it_is(self) -> bool:
        return isinstance(self._scheduler, PausingScheduler) and self._state.shutdown.interrupts_trials()
