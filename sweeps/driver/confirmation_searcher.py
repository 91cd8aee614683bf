"""Tune searcher for the confirmation of a winner: suggests repeats of the best trials."""

from __future__ import annotations

from typing import Any, cast

from ray.tune.experiment import Trial as TuneTrial
from ray.tune.search import Searcher

from sweeps.constants import LAST_DELIVERED, PARAMETERS, POOL, REPEAT_OF, TRIAL
from sweeps.driver.confirmer import Confirmer, Repeat, record
from sweeps.driver.not_pickled import NotPickled
from sweeps.driver.retries import failure_reason
from sweeps.driver.session import Session
from sweeps.tracking.confirmation_record import Confirmation, Contender


class RepeatSearcher(NotPickled, Searcher):
    """Suggests the repeats of the best trials that the confirmation still needs. It decides from the session's record,
    so that a resumed session makes the same decisions."""

    def __init__(self, session: Session, confirmer: Confirmer):
        objectives = session.state.objectives
        super().__init__(metric=objectives.metrics[0], mode=objectives.modes[0])
        self._session, self._confirmer = session, confirmer
        self.tune_trials: dict[str, TuneTrial] = {}
        """Tune's trial objects of all started repeats, by Tune's id."""
        self.ended_because: str | None = None
        """Reason to start no further repeat; None while further repeats may start."""
        self._suggested: set[str] = set()
        self._live: set[str] = set()
        self._recorded: Confirmation | None = None

    @property
    def num_trials(self) -> int:
        """Number of trials of the search. Setting it, when the sweep is extended, ends the repeats until the search has
        continued."""
        return self._session.state.num_trials

    @num_trials.setter
    def num_trials(self, number: int) -> None:
        self.ended_because = "the sweep was extended"

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        state = self._session.state
        # Tune asks again only after a second while no trial runs, so this waits here for the ends that decide.
        if not self._live and not self._session.wait_for_ends():
            self.ended_because = "the ends of repeats are unknown"
        with state.lock:
            self._record()
            if self.ended_because is None:
                known = "the winner is known" if self._confirmer.is_over() else None
                self.ended_because = state.shutdown.budget_spent or known
            next_ones = [] if self.ended_because else self._confirmer.missing()
            next_ones = [each for each in next_ones if each.trial not in self._suggested]
            chosen = next((config for each in next_ones if (config := self._config(trial_id, each)) is not None), None)
            if chosen is not None:
                self._suggested.add(chosen[TRIAL])
                self._live.add(trial_id)
            state.to_repeat = {*self._suggested, *(each.trial for each in next_ones)}
        if chosen is None and self.ended_because is not None and not self._live:
            return cast("dict[str, Any]", self.FINISHED)  # Tune's convention: a string
        return chosen

    def _config(self, trial_id: str, repeat: Repeat) -> dict[str, Any] | None:
        """Return the repeat's config for Tune; None if all suitable pools are full."""
        state = self._session.state
        parameters = repeat.parameters(state.composition.config.seed)
        config: dict[str, Any] = {TRIAL: repeat.trial, PARAMETERS: parameters, REPEAT_OF: repeat.original.trial}
        if (earlier := state.trials.get(repeat.trial)) is not None:
            config[LAST_DELIVERED] = earlier.step
        if state.pools is None:
            return config
        pool = state.pools.choose(trial_id, state.composition.trial(parameters), parameters)
        return None if pool is None else {**config, POOL: pool}

    def _record(self) -> None:
        """Record the result so far if it has changed, and show which trials can no longer win."""
        now = self._confirmer.result()
        if now == self._recorded:
            return
        before = {each.trial for each in self._recorded.contenders if _is_out(each)} if self._recorded else set()
        for each in now.contenders:
            if each.trial not in before and _is_out(each):
                why = each.failed or f"{each.lost_to} is significantly better"
                self._session.state.announce(f"trial {each.trial} is not confirmed: {why}")
        self._recorded = now
        record(self._session, now)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        state, trial = self._session.state, self.tune_trials.get(trial_id)
        self._live.discard(trial_id)
        if state.pools is not None:
            state.pools.release(trial_id)
        if error and trial is not None:
            state.end_if_storage_failed(failure_reason(trial))

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Do nothing, because the session records reports."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing, because the session records everything."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing, like ``save``."""


def _is_out(contender: Contender) -> bool:
    return contender.lost_to is not None or contender.failed is not None
