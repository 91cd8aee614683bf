"""The searcher of a sweep: Sweeps' Optuna searcher with numbered trials, resumed trials and the end of a sweep whose
trials all fail."""

from __future__ import annotations

from typing import Any

from ray.tune.experiment import Trial as TuneTrial

from sweeps.constants import LAST_DELIVERED, NUMBER, ORIGIN, ORIGIN_PREFIX, PARAMETERS, POOL, STAGE, TRIAL
from sweeps.driver.pool_choice import PoolChoice
from sweeps.driver.retries import AlikeFailures, failure_reason
from sweeps.driver.session import Session
from sweeps.errors import StorageFailed, mentions_storage_failure
from sweeps.plan.stage import PlannedStage
from sweeps.runtime.checkpoint_layout import Origin
from sweeps.search.not_pickled import NotPickled
from sweeps.search.reported_values import reported_values
from sweeps.search.schedulers.pbt import Exploit
from sweeps.search.searcher import OptunaSearcher
from sweeps.search.trial_ids import trial_id as name_of


class SweepSearcher(NotPickled, OptunaSearcher):
    """Numbers the points; the number is the trial's name for people."""

    def __init__(self, session: Session, *args: Any, stage: PlannedStage | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._session, self._stage = session, stage
        self.tune_trials: dict[str, TuneTrial] = {}
        """Tune's own trials that were started, by Tune's id: they know why they failed."""
        self.alike = AlikeFailures(self._has_reports)
        self._held: dict[str, dict[str, Any]] = {}
        """Trials that were suggested, and wait until a pool that suits them has room; at most one for each pool."""

    def why_failed(self, trial_id: str) -> str:
        trial = self.tune_trials.get(trial_id)
        return "it could not be started" if trial is None else failure_reason(trial)

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        pools, status = self._session.state.pools, self._session.state.shutdown.status
        if pools is None or status is not None:
            return self._next(trial_id)
        for held, config in self._held.items():
            if (placed := self._placed(trial_id, config, pools)) is not None:
                del self._held[held]
                self.rename(held, trial_id)
                return placed
        while len(self._held) < len(pools):
            suggested: Any = self._next(trial_id)  # a config, None, or Tune's sign that the search has finished
            if not isinstance(suggested, dict):
                return None if self._held else suggested
            if (placed := self._placed(trial_id, suggested, pools)) is not None:
                return placed
            held = f"waits for its pool: {suggested[TRIAL]}"
            self.rename(trial_id, held)
            self._held[held] = suggested
        return None

    def _placed(self, trial_id: str, config: dict[str, Any], pools: PoolChoice) -> dict[str, Any] | None:
        """A trial's config with its pool; None if every pool that suits it is full."""
        point = config[PARAMETERS]
        pool = pools.choose(trial_id, self._session.state.composition.trial(point), point)
        return None if pool is None else {**config, POOL: pool}

    def _next(self, trial_id: str) -> dict[str, Any] | None:
        resumes = bool(self.unfinished)
        point = super().suggest(trial_id)
        if not isinstance(point, dict):
            return point
        delivered = {LAST_DELIVERED: max(self._running[trial_id].reports, default=0)} if resumes else {}
        number = self.number(trial_id)
        if (stage := self._stage) is not None:
            return {
                TRIAL: name_of(number, stage.number),
                PARAMETERS: stage.parameters(point),
                STAGE: stage.number,
                **delivered,
            }
        return {TRIAL: name_of(number), PARAMETERS: point, **delivered, **self._last_exploit(trial_id)}

    def _last_exploit(self, trial_id: str) -> dict[str, Any]:
        """Parameters and origin of the last exploit of a resumed trial, when it took over another trial's state."""
        attributes = self._running[trial_id].trial.user_attrs
        counts = [int(name.removeprefix(ORIGIN_PREFIX)) for name in attributes if name.startswith(ORIGIN_PREFIX)]
        if not counts:
            return {}
        last = attributes[f"{ORIGIN_PREFIX}{max(counts)}"]
        return {PARAMETERS: last["parameters"], ORIGIN: Origin(last["trial"], last["step"], max(counts))}

    def exploited(self, exploit: Exploit) -> None:
        """Record in the study that a trial continues from another one's state, beside the values that it began with."""
        self._session.worker_events.exploited(exploit)
        trial_id = next(each for each in self._running if f"{self.number(each):04}" == exploit.trial)
        origin = exploit.origin
        self._running[trial_id].trial.set_user_attr(
            f"{ORIGIN_PREFIX}{origin.num_exploits}",
            {
                "trial": origin.trial,
                "step": origin.step,
                "parameters": dict(exploit.parameters),
                "decision": dict(exploit.decision),
            },
        )

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        shutdown, folder = self._session.state.shutdown, self._session.state.folder
        if error and mentions_storage_failure(reason := self.why_failed(trial_id), folder):
            shutdown.storage_has_failed(StorageFailed(folder, reason))
        if (pools := self._session.state.pools) is not None:
            pools.release(trial_id)
        self.interrupted = shutdown.interrupts_trials()
        super().on_trial_complete(trial_id, result, error)
        if error and not self.interrupted:
            self._end_if_all_fail_alike(trial_id)

    def _has_reports(self) -> bool:
        """Whether a trial has made a report."""
        return any(reported_values(trial) for trial in self.study.get_trials(deepcopy=False))

    def _end_if_all_fail_alike(self, trial_id: str) -> None:
        reason = self.alike.add(self.tune_trials.get(trial_id), self.why_failed(trial_id))
        trials = self.study.get_trials(deepcopy=False)
        left = self.num_trials is None or sum(NUMBER in trial.user_attrs for trial in trials) < self.num_trials
        if reason is not None and left and not self._has_reports():
            self.ended_because = (
                f"{reason}. No trial has made a report, so no further one is started; fix it, and "
                f"`python -m sweeps resume {self._session.state.sweep}` continues it"
            )
