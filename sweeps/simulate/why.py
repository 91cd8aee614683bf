"""Explains a trial's suggestion and each decision about it, from what was known at that time."""

from __future__ import annotations

import optuna
from optuna.trial import FrozenTrial, TrialState

from sweeps.compat.optuna import enqueued_values
from sweeps.constants import NUMBER, REASON
from sweeps.errors import UserError
from sweeps.plan.build_scheduler import build_scheduler
from sweeps.plan.plan import Plan
from sweeps.search.point_source import POINT
from sweeps.search.schedulers.decisions import PAUSES, STOPS, DecisionLog
from sweeps.search.study_search import ENDED
from sweeps.search.trial_ids import trial_id, trial_stage
from sweeps.simulate.replay import read_journal, study_of


def why(plan: Plan, trial: str) -> list[str]:
    """Return the reasons for a trial's suggestion and for each decision about it, one sentence each, in order.

    Args:
        plan: The trial's sweep.
        trial: The trial's id.

    Raises:
        UserError: The sweep's folder has no study, or the study has no such trial; the study does not contain repeats.
    """
    original, _, is_repeat = trial.partition("r")
    if is_repeat:
        raise UserError(
            f"--trial={trial}: repeats trial {original} with another seed, so neither the sampler nor the scheduler "
            f"decided about it; --trial={original} --why tells about the original"
        )
    stage = trial_stage(trial)
    plan = plan if stage is None else plan.in_stage(stage)
    study = study_of(plan, read_journal(plan))
    found = [
        each for each in study.get_trials(deepcopy=False) if trial_id(each.user_attrs.get(NUMBER, -1), stage) == trial
    ]
    if not found:
        raise UserError(f"--trial={trial}: the study of {plan.name} has no such trial")
    reason = found[0].user_attrs.get(REASON)
    return [
        _suggested(plan, study, found[0]),
        *_decided(plan, study, trial),
        *([f"counts as failed for the sampler: {reason}"] if reason else []),
    ]


def _suggested(plan: Plan, study: optuna.Study, trial: FrozenTrial) -> str:
    others = [each for each in study.get_trials(deepcopy=False) if NUMBER in each.user_attrs and each is not trial]
    start = trial.datetime_start
    ended = [each for each in others if start and each.datetime_complete and each.datetime_complete <= start]
    before = [each for each in others if start and each.datetime_start and each.datetime_start < start]
    counts: dict[str, int] = {name: sum(each.state is state for each in ended) for state, name in ENDED.items()}
    counts["running"] = sum(each not in ended for each in before)
    known = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return f"{_origin(plan, trial)}; then known: {known or 'no other trial'}{_best(plan, ended)}"


def _origin(plan: Plan, trial: FrozenTrial) -> str:
    """Describe where a trial's point comes from."""
    values, sampler = enqueued_values(trial), plan.config.search.sampler.kind
    if POINT in trial.user_attrs:
        return f"given first: it is {_place(plan, trial.user_attrs[POINT])}"
    if values is None:
        return f"suggested by the sampler {sampler}"
    if values.keys() >= trial.params.keys():
        return "a point of the grid, one from a prior, or drawn at random after the sampler suggested only known points"
    return f"suggested by the sampler {sampler}, with {', '.join(values)} from a prior"


def _place(plan: Plan, position: int) -> str:
    """Describe the origin of a point that was trained before those of the sampler.

    Args:
        plan: The plan of the sweep, or of a stage.
        position: Position of the point among these first points, from 1.
    """
    is_after_stage, users = bool(plan.results_of_stages), plan.config.search.points
    given = plan.first_points() if is_after_stage else plan.points.first()
    point = given[position - 1] if position <= len(given) else None
    if point in users and not is_after_stage:
        return f"search.points.{users.index(point)}"
    if point is not None and point == plan.points.default()[0]:
        return "the config's own"
    return f"of the best of {'the stage before' if is_after_stage else 'an earlier sweep'}"


def _best(plan: Plan, ended: list[FrozenTrial]) -> str:
    """Name the best finished trial and its value, as the end of a sentence; empty if no trial has finished."""
    finished = [each for each in ended if each.state is TrialState.COMPLETE]
    if not finished:
        return ""
    choose = min if plan.config.search.modes[0] == "min" else max
    best = choose(finished, key=lambda each: each.values[0])
    name = trial_id(best.user_attrs[NUMBER], None if plan.stage is None else plan.stage.number)
    return f"; the best {plan.config.search.metrics[0]} was {best.values[0]:.6g}, of trial {name}"


def _decided(plan: Plan, study: optuna.Study, trial: str) -> list[str]:
    log, told = DecisionLog(study, named=lambda number: trial_id(number, trial_stage(trial))), []
    events = log.events
    for position, (number, event) in enumerate(events):
        if number != trial:
            continue
        # Restore the state after the earlier decisions, as after a restart: making all of them again takes minutes.
        log.events = events[:position]
        scheduler = build_scheduler(plan, log)
        if (reason := scheduler.explain(trial, event)) is not None:
            did = "stopped" if event.get(STOPS) else "paused" if event.get(PAUSES) else "went on"
            told.append(f"{did}: {reason}")
        elif scheduler.repeat(trial, event) is None:
            told.append(f"decision: {event}")
    return told
