"""Rewriting of a study: lost trials are rebuilt after a crash, and all trials are recoded for a wider space."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.trial import FrozenTrial, TrialState
from pydantic import TypeAdapter

from sweeps.compat.optuna import (
    copy_system_attributes,
    enqueued_values,
    remove_cma_es_state,
    remove_constraints,
    set_enqueued_values,
)
from sweeps.config.objectives import Objectives, Values
from sweeps.config.space import Distribution, OrdinalDistribution
from sweeps.constants import COST_MODEL, CURVE_MODELS, NUMBER, ORIGIN_PREFIX, REASON
from sweeps.files.whole_files import replacing
from sweeps.search.reported_values import ReportedValues
from sweeps.search.schedulers.decisions import decisions_if_longer
from sweeps.search.study_file import StudyFile, open_study_storage
from sweeps.search.study_search import STOPPED_BY_USER
from sweeps.search.study_version import STUDY_FILE, read_attributes
from sweeps.space.space import Lookup, Space

SPACE = "sweeps:space"
"""Attribute of a study that was rewritten for a wider space: that space, as JSON. If the driver dies before it saves
the config with that space, the next driver reads here what the values of the trials mean."""
DISTRIBUTIONS = TypeAdapter(dict[str, Distribution])
FAILED_FOR_GOOD = re.compile(rf"{STOPPED_BY_USER}|((?!: ).)+=(nan|-?inf)")
"""Reasons of failures that no further attempt would change: a person has stopped the trial, or it has diverged."""


def rebuild_trial(
    space: Space,
    lookup: Lookup,
    objectives: Objectives,
    *,
    number: int,
    point: Mapping[str, Any],
    results: Iterable[Mapping[str, Any]],
    state: TrialState,
    values: Values | None = None,
    reason: str | None = None,
) -> FrozenTrial:
    """Rebuild a trial that a study has lost, as the searcher would have recorded it.

    Args:
        results: Reports of the trial, in order.
        state: State of the trial: ``RUNNING`` if it has not ended.
        values: Final values of the trial; default: those of the best result.
    """
    study = optuna.create_study(directions=["minimize" if mode == "min" else "maximize" for mode in objectives.modes])
    study.enqueue_trial(space.encode(point))
    trial = study.ask()
    space.sample(trial, lookup)
    trial.set_user_attr(NUMBER, number)
    reported = ReportedValues(trial, objectives)
    for result in results:
        reported.add(result)
    if reason is not None:
        trial.set_user_attr(REASON, reason)
    elif state != TrialState.RUNNING:
        reported.set_constraints()
    if state != TrialState.RUNNING:
        study.tell(trial, (values or reported.values) if state == TrialState.COMPLETE else None, state)
    return study.get_trials()[0]


def rewrite_in_space(
    folder: Path,
    name: str,
    before: Space,
    after: Space,
    lookup: Lookup,
    *,
    reopen: Container[TrialState] = (),
    file: str = STUDY_FILE,
) -> None:
    """Rewrite a study for a wider space, completely or not at all; its trials keep their numbers.

    Samplers only learn from trials that were sampled from the same ranges. The study records its space.

    Args:
        before: Space that the trials were sampled from.
        after: The wider space.
        reopen: States of trials to mark as running, so that they continue: complete ones, since trials have become
            longer, or failed ones, since they have further attempts.
    """
    attributes = {SPACE: DISTRIBUTIONS.dump_json(after.distributions).decode()}
    _rewrite(folder / file, name, lambda trial: _in_space(trial, before, after, lookup, reopen=reopen), attributes)


def recorded_space(path: Path) -> dict[str, Distribution] | None:
    """Return the space for which a study was last rewritten; None if it never was."""
    recorded = read_attributes(path, SPACE).get(SPACE)
    return None if recorded is None else DISTRIBUTIONS.validate_json(recorded)


def exploits_of_trials(folder: Path, name: str) -> dict[str, int]:
    """Return how often each trial in a sweep's study has continued from another trial's state, by the trial's number as
    text."""
    storage, _ = open_study_storage(folder / STUDY_FILE)
    if name not in optuna.get_all_study_names(storage):
        return {}
    trials = optuna.load_study(study_name=name, storage=storage).get_trials(deepcopy=False)
    return {
        f"{trial.user_attrs[NUMBER]:04}": len([each for each in trial.user_attrs if each.startswith(ORIGIN_PREFIX)])
        for trial in trials
        if NUMBER in trial.user_attrs
    }


def clear_half_sampled(path: Path, storage: JournalStorage, name: str) -> bool:
    """Remove the values of a trial whose driver died while they were being sampled.

    When asked again, a sampler that is seeded by trial suggests the same values as if the driver had not died; if some
    values were already set, it would suggest others.

    Returns:
        Whether there was such a trial, and the file was rewritten; then open it again.
    """
    if name not in optuna.get_all_study_names(storage):
        return False
    trials = optuna.load_study(study_name=name, storage=storage).get_trials(states=(TrialState.RUNNING,))
    if not any(_is_half_sampled(trial) for trial in trials):
        return False
    _rewrite(path, name, lambda trial: _without_values(trial) if _is_half_sampled(trial) else trial)
    return True


def _is_half_sampled(trial: FrozenTrial) -> bool:
    return trial.state == TrialState.RUNNING and NUMBER not in trial.user_attrs and bool(trial.params)


def _without_values(trial: FrozenTrial) -> FrozenTrial:
    trial.params, trial.distributions = {}, {}
    return trial


def _rewrite(
    path: Path,
    name: str,
    convert: Callable[[FrozenTrial], FrozenTrial],
    attributes: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Replace each trial of a study, and set some of its attributes, completely or not at all."""
    storage, _ = open_study_storage(path)
    if name not in optuna.get_all_study_names(storage):  # its driver died before it made the study
        return
    study = optuna.load_study(study_name=name, storage=storage)
    with replacing(path) as unfinished:
        to = JournalStorage(StudyFile(unfinished))
        new = optuna.create_study(study_name=name, storage=to, directions=study.directions)
        for key, value in {**study.user_attrs, **attributes}.items():
            new.set_user_attr(key, value)
        copy_system_attributes(study, new)
        for trial in study.get_trials():
            new.add_trial(convert(trial))


def _in_space(
    trial: FrozenTrial, before: Space, after: Space, lookup: Lookup, *, reopen: Container[TrialState]
) -> FrozenTrial:
    """Return a trial as if it had been sampled from the wider space."""
    if trial.state == TrialState.WAITING:
        values = enqueued_values(trial) or {}
        set_enqueued_values(trial, {path: _recoded(path, value, before, after) for path, value in values.items()})
        return trial
    if before.distributions != after.distributions:  # distances in the wider space differ
        for model in (CURVE_MODELS, COST_MODEL):
            trial.system_attrs.pop(model, None)
        remove_cma_es_state(trial)  # which Optuna may note before it samples the values
    try:
        point = before.sample(trial, lookup)
    except ValueError:  # its driver died while it was sampled, and it was rejected
        return _without_values(trial)
    sampled = optuna.create_study()
    sampled.enqueue_trial(after.encode(point))
    after.sample(sampled.ask(), lookup)
    again = sampled.get_trials()[0]
    trial.params, trial.distributions = again.params, again.distributions
    was_started = NUMBER in trial.user_attrs  # else it was rejected
    if trial.state in reopen and was_started and not FAILED_FOR_GOOD.fullmatch(trial.user_attrs.get(REASON, "")):
        if trial.state == TrialState.COMPLETE:
            trial.user_attrs = decisions_if_longer(trial.user_attrs)
        trial.state, trial.values, trial.datetime_complete = TrialState.RUNNING, None, None
        trial.user_attrs.pop(REASON, None)
        remove_constraints(trial)
    return trial


def _recoded(path: str, value: Any, before: Space, after: Space) -> Any:
    """Encode the value of a parameter for the wider space; an ordered choice is encoded as its index."""
    old, new = before.distributions.get(path), after.distributions.get(path)
    if isinstance(old, OrdinalDistribution) and isinstance(new, OrdinalDistribution):
        return new.choices.index(old.choices[value])
    return value
