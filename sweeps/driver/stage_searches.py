"""Stages of a search, which train cheaper trials before the sweep's own, and the agreement of their rankings."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sweeps.constants import TAG_STAGES
from sweeps.driver.session import Session
from sweeps.driver.sweep_state import SweepState
from sweeps.driver.trial_status import TrialStatus
from sweeps.plan.plan import Plan
from sweeps.plan.stage import Factors, PlannedStage, rescaled
from sweeps.search.rank_agreement import agreement
from sweeps.search.samplers.earlier_sweep import EarlierSweep
from sweeps.search.samplers.saved_trials import save_earlier, saved_earlier
from sweeps.space.space import Space
from sweeps.tracking.stage_results import Agreement, StageResult, describe_stages

LOOK_EVERY_S = 5.0
"""Minimum seconds between two updates of the results while trials train."""


def is_over(plan: Plan, stage: PlannedStage) -> bool:
    """Whether all trials of a stage have ended, in this session or an earlier one."""
    return saved_earlier(plan.folder, stage.results_file) is not None


def begin_stage(plan: Plan, session: Session, stage: PlannedStage) -> None:
    session.wait_for_ends()  # the ends of the previous stage's trials
    with session.state.lock:
        session.state.stage = stage
    session.state.announce(stage.describe())
    record_stages(plan, session)


def end_stage(plan: Plan, session: Session, stage: PlannedStage, ended_because: str | None) -> str | None:
    """Record the results of a finished stage, from which the next one starts.

    Returns:
        Reason why the search cannot continue; None if it can.
    """
    state, shutdown = session.state, session.state.shutdown
    session.wait_for_ends()
    with state.lock:
        results = results_of(state, plan.space, stage)
        state.stage = None
    if not shutdown.interrupts_trials() and results.points:
        save_earlier(plan.folder, [results], stage.results_file)
    record_stages(plan, session)
    if shutdown.interrupts_trials():
        return shutdown.failing or shutdown.budget_spent or f"the sweep was {shutdown.status}"
    _forget_lanes(plan, session, stage)
    if not results.points:
        return f"stage {stage.number} has no trial with a value, so the search cannot continue ({ended_because})"
    with state.lock:
        lines = describe_stages(stage_results(plan, state))
    for line in lines[max(0, stage.number - 2) : stage.number]:  # the previous stage can now be compared with this one
        state.announce(line)
    return None


def _forget_lanes(plan: Plan, session: Session, stage: PlannedStage) -> None:
    """Forget the number of trials for each worker group that a stage has measured, if the next trials train on another
    base, which may have no room for as many."""
    one, following = (each.config.shared_values for each in plan.compositions[stage.number - 1 : stage.number + 1])
    if one != following:
        with session.state.lock:
            session.state.lanes_found, session.state.has_found_lanes = 1, False
        session.broker.forget_lanes()


def results_of(state: SweepState, space: Space, stage: PlannedStage) -> EarlierSweep:
    """Return the points and values of a stage's trials, best first, as input for the sampler of the next search."""
    trials = state.ranked(stage)
    return EarlierSweep(
        name=f"stage {stage.number}",
        points=[_point(each, space) for each in trials],
        values=[each.value or 0.0 for each in trials],
    )


def _point(status: TrialStatus, space: Space) -> dict[str, Any]:
    """Return a trial's searched values, except those that its stage sets."""
    return {path: value for path, value in status.parameters.items() if path in space.distributions}


def stage_results(plan: Plan, state: SweepState) -> tuple[StageResult, ...]:
    """Return the results of a sweep's stages, computed from the trials that have ended."""
    results = []
    for stage, next_stage in zip(plan.stages, (*plan.stages[1:], None), strict=False):  # without stages, none
        own = _ended(state, plan.space, stage, stage.factors)
        following = _ended(state, plan.space, next_stage)
        best = next(iter(state.ranked(stage)), None)
        results.append(
            StageResult(
                stage=stage.number,
                overrides=stage.overrides,
                num_trials=stage.num_trials,
                ended=sum(each.has_ended for each in state.trials_of(stage)),
                best=best.trial if best is not None else None,
                value=best.value if best is not None else None,
                kept=min(stage.keep, len(own)) if is_over(plan, stage) else 0,
                agreement=_agreement(own, following) if following else None,
            )
        )
    return tuple(results)


def _ended(
    state: SweepState, space: Space, stage: PlannedStage | None, factors: Factors = MappingProxyType({})
) -> dict[str, TrialStatus]:
    """Return the best ended trial at each point, best first, without trials that have no value. The factors rescale
    each point to that of the next stage."""
    trials: dict[str, TrialStatus] = {}
    for each in state.ranked(stage):
        if each.has_ended:
            point = rescaled(_point(each, space), factors, space)
            trials.setdefault(json.dumps(point, sort_keys=True, default=str), each)
    return trials


def _agreement(first: Mapping[str, TrialStatus], second: Mapping[str, TrialStatus]) -> Agreement:
    """Return the rank agreement of two stages over the points that both trained to the end. Points that the scheduler
    stopped do not count, because up to the same early step two stages often train identically."""
    pairs = [(each, second[point]) for point, each in first.items() if point in second]
    whole = [(one.value or 0.0, other.value or 0.0) for one, other in pairs if one.state == other.state == "finished"]
    return agreement([one for one, _ in whole], [other for _, other in whole])


def record_stages(plan: Plan, session: Session, before: tuple[StageResult, ...] = ()) -> tuple[StageResult, ...]:
    """Record the results of the stages so far, unless they are those that were recorded before; return them."""
    with session.state.lock:
        results = stage_results(plan, session.state)
    if results != before:
        session.recorder.attach({}, {TAG_STAGES: json.dumps([each.as_json() for each in results])})
    return results


class StageWatch:
    """Updates the results of the stages while trials train: each ended trial makes the rank agreement more certain."""

    def __init__(self, plan: Plan, session: Session):
        self._plan, self._session = plan, session
        self._recorded: tuple[StageResult, ...] = ()
        self._next_at = 0.0

    def look(self) -> None:
        """Record the results if they are due and have changed."""
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + LOOK_EVERY_S
            self._recorded = record_stages(self._plan, self._session, self._recorded)
