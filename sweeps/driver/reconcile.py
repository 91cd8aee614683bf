"""Reconciliation of study and record when a sweep is resumed: an earlier driver may have died after writing only one of
them."""

from __future__ import annotations

from optuna.trial import TrialState

from sweeps.constants import NUMBER, REASON, STEP
from sweeps.driver.session import Session
from sweeps.plan.stage import PlannedStage, study_file
from sweeps.search.reported_values import reported_values
from sweeps.search.schedulers.decisions import was_stopped
from sweeps.search.schedulers.scheduler import Exploit
from sweeps.search.study_rewriting import rebuild_trial
from sweeps.search.study_search import ENDED, STOPPED_BY_USER, StudySearch, taken_over
from sweeps.search.trial_ids import trial_id, trial_number
from sweeps.space.space import Lookup


def reconcile(searcher: StudySearch, lookup: Lookup, session: Session, stage: PlannedStage | None = None) -> None:
    """Use the record to restore trials that the study has lost, and record the ends of trials that only the study
    has."""
    session.wait_for_ends()  # the search may continue in the same session
    of_stage = None if stage is None else stage.number
    _restore(searcher, lookup, session, stage)
    for unfinished in searcher.unfinished:
        trial = trial_id(unfinished.number, of_stage)
        session.state.reopen(trial)
        if session.state.is_unwanted(trial):  # its driver died before telling the study; it ends when restarted
            session.lifecycle.stop(trial)
    searcher.prune_unfinished(was_stopped)
    for known in searcher.study.get_trials(deepcopy=False):
        for parameters, origin in taken_over(known):
            trial = trial_id(known.user_attrs[NUMBER], of_stage)
            session.worker_events.exploited(Exploit(trial, origin, parameters), searcher.space.sample(known, lookup))
    recorded = {status.trial for status in session.state.all_trials if status.has_ended}
    for ended in searcher.study.get_trials(deepcopy=False, states=tuple(ENDED)):
        if NUMBER not in ended.user_attrs or (trial := trial_id(ended.user_attrs[NUMBER], of_stage)) in recorded:
            continue
        reason = ended.user_attrs.get(REASON)
        is_unwanted = reason == STOPPED_BY_USER
        point = searcher.space.sample(ended, lookup)
        session.lifecycle.catch_up(
            trial,
            point if stage is None else stage.parameters(point),
            "stopped" if is_unwanted else ENDED[ended.state],
            None if is_unwanted else reason,
            max(reported_values(ended), default=0) if ended.state == TrialState.PRUNED else None,
            of_stage,
        )


def _restore(searcher: StudySearch, lookup: Lookup, session: Session, stage: PlannedStage | None) -> None:
    """Add recorded trials back to a study whose damaged file has lost them. Stopped trials are added as unfinished,
    because the record does not say who stopped them."""
    known = {trial.user_attrs.get(NUMBER) for trial in searcher.study.get_trials(deepcopy=False)}
    states: dict[str, TrialState] = {name: state for state, name in ENDED.items()}
    of_stage = None if stage is None else stage.number
    recorded = [
        trial for trial in session.state.recorded_trials() if trial.repeat_of is None and trial.stage == of_stage
    ]
    lost = [trial for trial in recorded if trial_number(trial.trial) not in known]
    for trial in lost:
        reports = session.worker_events.reports(trial.trial)
        restored = rebuild_trial(
            searcher.space,
            lookup,
            searcher.objectives,
            number=trial_number(trial.trial),
            point={path: value for path, value in trial.params.items() if path in searcher.space.distributions},
            results=[{**report.metrics, STEP: report.step, "training_iteration": report.step} for report in reports],
            state=states.get(trial.state, TrialState.RUNNING),
            values=trial.all_values() or None,
            reason=trial.error,
        )
        searcher.restore_trial(restored)
    if lost:
        names = ", ".join(trial.trial for trial in lost)
        session.state.announce(f"{study_file(stage)} had lost the trials {names}; they were restored from the record")
