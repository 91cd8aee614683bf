"""Requests (extend, stop) to a running sweep from other terminals and machines, handled by its driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from sweeps.driver.recorded_provenance import record_composition
from sweeps.driver.session import Session
from sweeps.driver.signals import ShutdownSignals
from sweeps.errors import DoesNotFit, UserError
from sweeps.plan.extend import check_running, describe_search
from sweeps.plan.resume import reopened
from sweeps.plan.saved_sweep import save
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.sweep_run import own_start

if TYPE_CHECKING:
    from sweeps.driver.changing_capacity import Capacity
    from sweeps.driver.pause_aware_limiter import PauseAwareLimiter
    from sweeps.search.study_search import StudySearch


class RequestHandler:
    """Handles the requests that arrive while Tune searches."""

    def __init__(
        self,
        session: Session,
        limiter: PauseAwareLimiter,
        capacity: Capacity,
        signals: ShutdownSignals,
    ):
        self._session, self._limiter, self._capacity, self._signals = session, limiter, capacity, signals

    def handle(self, request: Mapping[str, Any]) -> str:
        """Execute a request, and return the text of the answer.

        Raises:
            UserError: The request cannot be carried out.
        """
        name = self._session.plan.name
        match request:
            case {"verb": "extend", "changes": changes}:
                return self._extend(changes)
            case {"verb": "stop", "trial": None}:
                self._signals.begin_shutdown("stopped")
                return f"{name} ends: its trials save their state"
            case {"verb": "stop", "trial": trial}:
                self._session.lifecycle.stop(trial)
                return f"trial {trial} saves its state and ends"
        raise UserError(f"{name}: its driver cannot {request['verb']}; its version may be older; `stop` it first")

    def _extend(self, changes: Mapping[str, Any]) -> str:
        check_running(changes)
        state, plan = self._session.state, self._session.plan
        extended = reopened(load_sweep(plan.config.tracking.uri, plan.name, own_start(plan.folder)), changes)
        save(extended)
        self._session.plan = extended
        try:
            self._capacity.refit(extended)
            now = f"{state.concurrent} at once"
        except DoesNotFit as error:  # nodes are away: the sweep is extended all the same
            now = f"no trial can be placed now ({error})"
        state.extend(extended.composition, extended.num_trials)
        self._session.recorder.record_config(
            extended.composition.as_yaml(), extended.num_trials, extended.points.num_points
        )
        record_composition(extended, self._session.recorder)
        if state.stage is None:
            cast("StudySearch", self._limiter.searcher).num_trials = extended.config.search.num_trials
        return f"{plan.name} continues: {describe_search(extended.config.search)}; {now}"
