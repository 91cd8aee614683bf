"""Tune searcher of a sweep: gives trials their ids, pools and stages, and ends the search if all trials fail."""

from __future__ import annotations

from typing import Any, NamedTuple

from ray.tune.experiment import Trial as TuneTrial

from sweeps.constants import FAILED, LAST_DELIVERED, ORIGIN, PARAMETERS, POOL, STAGE, TRIAL
from sweeps.driver.not_pickled import NotPickled
from sweeps.driver.optuna_searcher import OptunaSearcher
from sweeps.driver.pool_choice import PoolChoice
from sweeps.driver.retries import failure_reason
from sweeps.driver.session import Session
from sweeps.plan.stage import PlannedStage
from sweeps.search.reported_values import ReportedValues, reported_values
from sweeps.search.schedulers.scheduler import Exploit
from sweeps.search.study_search import Suggested
from sweeps.search.trial_ids import trial_id as name_of


class _SetAside(NamedTuple):
    """A trial that had reported before, and has failed at a later start."""

    number: int
    trial: str
    reported: ReportedValues
    why: str
    """Reason for its failure."""
    num_reports: int
    """Number of reports of the search before that."""


class SweepSearcher(NotPickled, OptunaSearcher):
    """Suggests points as numbered trials of a sweep; users see the number as the trial's id."""

    def __init__(self, session: Session, *args: Any, stage: PlannedStage | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._session, self._stage = session, stage
        self.tune_trials: dict[str, TuneTrial] = {}
        """Tune's trial objects of all started trials, by Tune's id; they know why an actor died."""
        self._reasons: dict[str, str] = {}
        """Reason for the failure of each failed trial, by Tune's id."""
        self._held: list[Suggested] = []
        """Suggested trials that wait until a suitable pool has room; at most one per pool."""
        self._set_aside: list[_SetAside] = []
        """Trials that had reported before, and have failed at a later start. The study has them as running until it is
        known whether others fail like them."""

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        pools, shutdown = self._session.state.pools, self._session.state.shutdown
        self._end_those_that_failed_alone()
        if shutdown.interrupts_trials():  # a trial would only start to stop; those that are unfinished stay so
            self.ended_because = self.ended_because or shutdown.failing or shutdown.budget_spent
            while self._held:
                del self._running[self._held.pop().number]
            return self.none_left()
        if pools is None:
            suggested = self.next_trial()
            return self.none_left() if suggested is None else self._config(trial_id, suggested)
        for held in self._held:
            if (placed := self._placed(trial_id, held, pools)) is not None:
                self._held.remove(held)
                return placed
        while len(self._held) < len(pools):
            suggested = self.next_trial()
            if suggested is None:
                return self.none_left()
            if (placed := self._placed(trial_id, suggested, pools)) is not None:
                return placed
            self._held.append(suggested)
        return None

    def _placed(self, trial_id: str, suggested: Suggested, pools: PoolChoice) -> dict[str, Any] | None:
        """Return a trial's Tune config with its pool; None if all suitable pools are full."""
        parameters = self._parameters(suggested)
        pool = pools.choose(trial_id, self._session.state.composition.trial(parameters), parameters)
        return None if pool is None else {**self._config(trial_id, suggested), POOL: pool}

    def _config(self, trial_id: str, suggested: Suggested) -> dict[str, Any]:
        """Return a trial's config for Tune."""
        self._numbers[trial_id] = suggested.number
        stage = None if self._stage is None else self._stage.number
        config = {TRIAL: name_of(suggested.number, stage), PARAMETERS: self._parameters(suggested)}
        known = {STAGE: stage, LAST_DELIVERED: suggested.reported, ORIGIN: suggested.origin}
        return config | {key: value for key, value in known.items() if value is not None}

    def _parameters(self, suggested: Suggested) -> dict[str, Any]:
        return suggested.point if self._stage is None else self._stage.parameters(suggested.point)

    def exploited(self, exploit: Exploit) -> None:
        """Record that a trial continues from another trial's state."""
        self._session.worker_events.exploited(exploit)
        super().exploited(exploit)

    def why_failed(self, trial_id: str) -> str:
        if (reason := self._reasons.get(trial_id)) is not None:
            return reason
        trial = self.tune_trials.get(trial_id)
        return "it could not be started" if trial is None else failure_reason(trial)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        state = self._session.state
        if result is not None and FAILED in result:
            self._reasons[trial_id], error = result[FAILED], True
        if error:
            state.end_if_storage_failed(self.why_failed(trial_id))
        if state.pools is not None:
            state.pools.release(trial_id)
        self.interrupted = state.shutdown.interrupts_trials()
        with state.lock:  # not while the event loop records a decision about the trial
            if error and self._may_continue(trial_id):
                self._set_trial_aside(trial_id)
            super().on_trial_complete(trial_id, result, error)
        if error and not self.interrupted:
            self._end_if_trials_fail_alike(trial_id)

    def _may_continue(self, trial_id: str) -> bool:
        """Whether `resume` may have to continue a trial that has failed."""
        if self._session.state.shutdown.failing is not None:
            return True
        trial, status = self._name(trial_id), self._session.state.trials.get(self._name(trial_id))
        had_reported = status is not None and status.has_reported
        return had_reported and self._session.retries.at_start(trial, self.why_failed(trial_id))

    def _set_trial_aside(self, trial_id: str) -> None:
        number, retries = self._numbers[trial_id], self._session.retries
        if (reported := self._running.pop(number, None)) is not None:
            failed = _SetAside(number, self._name(trial_id), reported, self.why_failed(trial_id), retries.num_reports)
            self._set_aside.append(failed)

    def _end_those_that_failed_alone(self) -> None:
        """Record the failures of trials after which another trial has made a report."""
        if self._session.state.shutdown.failing is not None:
            return
        for each in [each for each in self._set_aside if each.num_reports < self._session.retries.num_reports]:
            self._set_aside.remove(each)
            self._end_set_aside(each)

    def _end_set_aside(self, failed: _SetAside) -> None:
        self._running[failed.number] = failed.reported
        self.end(failed.number, error=failed.why)

    def _end_if_trials_fail_alike(self, trial_id: str) -> None:
        state, retries = self._session.state, self._session.retries
        reason = retries.failed(self._name(trial_id), self.why_failed(trial_id))
        if reason is None or not (self._has_left or self.unfinished or self._set_aside):
            return
        if any(reported_values(trial) for trial in self.study.get_trials(deepcopy=False)):
            self._begin_no_further(reason)
        elif self._has_left:
            self.ended_because = (
                f"{reason}. No trial has made a report, so no further one is started; fix the error, and "
                f"`python -m sweeps resume {state.sweep}` continues it"
            )

    def _begin_no_further(self, reason: str) -> None:
        state = self._session.state
        fixed = f"fix the error, and `python -m sweeps resume {state.sweep}` continues it"
        self.ended_because = f"{reason}. No further one is started; {fixed}"
        state.announce(self.ended_because)
        state.shutdown.trials_fail(self.ended_because, pauses=state.composition.config.search.pauses_trials)

    def settle(self) -> None:
        """Decide at the end of the search about trials that failed at a later start: ``resume`` continues them if no
        trial of this session has reported, or if the sweep ends before then."""
        self._end_those_that_failed_alone()
        retries, shutdown = self._session.retries, self._session.state.shutdown
        goes_on = shutdown.interrupts_trials() or retries.num_reports
        if self._set_aside and not goes_on and not self._can_never_start():
            self._begin_no_further(retries.described(len(self._set_aside), self._set_aside[-1].why))
        for each in self._set_aside:
            if shutdown.interrupts_trials():
                self._session.lifecycle.keep(each.trial)
            else:
                self._end_set_aside(each)
        self._set_aside.clear()

    def _can_never_start(self) -> bool:
        """Whether the only trial left has failed at its start as in an earlier session, and would keep the sweep from
        ever ending."""
        if len(self._set_aside) > 1 or self._has_left:
            return False
        state, trial = self._session.state, self._set_aside[0].trial
        earlier = [] if state.earlier is None else state.earlier.all_trials
        before = {failure.error for each in earlier if each.trial == trial for failure in each.failures}
        failures = state.trials[trial].failures
        return bool(failures) and failures[-1].error in before

    def _name(self, trial_id: str) -> str:
        """Return the sweep's id of a trial, by Tune's id."""
        return name_of(self._numbers[trial_id], None if self._stage is None else self._stage.number)
