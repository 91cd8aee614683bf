"""The file of a study: opened by its one writer, mended where a dead one left it torn, and filled up again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from sweeps.compat.optuna import copy_system_attributes, enqueued_values, set_enqueued_values
from sweeps.config.objectives import Objectives, Values
from sweeps.config.space import OrdinalDistribution
from sweeps.constants import NUMBER, REASON
from sweeps.files import replacing
from sweeps.search.reported_values import Progress
from sweeps.search.schedulers.decisions import decisions_if_longer
from sweeps.search.study_version import STUDY_FILE
from sweeps.space.distributions import Lookup, Space

DAMAGED = ".damaged"


def open_journal(path: Path) -> tuple[JournalStorage, str | None]:
    """The storage in a file, and what was wrong with it. Its caller is the only writer.

    Optuna writes each change as one line, puts it on the disk, and only then acts on it: half a line at the end is a
    change that nobody has relied on. After a line in the middle that cannot be read nothing is certain, since later
    ones count on it; what is cut off is kept beside the file.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # not a line for every suggestion
    path.with_name(path.name + ".lock").unlink(missing_ok=True)  # of a dead writer: Optuna would wait 30 s for it
    wrong = None
    if path.exists():
        size, whole = path.stat().st_size, _whole(path)
        if whole < size:
            shutil.copy2(path, path.with_name(path.name + DAMAGED))
            with path.open("r+b") as file:
                file.truncate(whole)
                os.fsync(file.fileno())
            wrong = f"{path.name} could be read up to byte {whole:,} of {size:,}, and goes on from there"
    return JournalStorage(JournalFileBackend(str(path))), wrong


def _whole(path: Path) -> int:
    """Bytes of the leading lines that are what Optuna writes."""
    whole = 0
    with path.open("rb") as lines:
        for line in lines:
            try:
                readable = line.endswith(b"\n") and isinstance(json.loads(line), dict)
            except ValueError:
                readable = False
            if not readable:
                break
            whole += len(line)
    return whole


def trial_as_told(
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
    """A trial as the searcher would have told a study of it, for a study that has lost it.

    Args:
        space: What is searched.
        lookup: The config's own values.
        objectives: What is read of its results.
        number: Of the trial within its sweep.
        point: Its parameters.
        results: What it reported, in order.
        state: How it ended, or ``RUNNING``.
        values: Of a finished trial, where its results are lost, too.
        reason: Why it failed.
    """
    told = optuna.create_study(directions=["minimize" if mode == "min" else "maximize" for mode in objectives.modes])
    told.enqueue_trial(space.encode(point))
    trial = told.ask()
    space.sample(trial, lookup)
    trial.set_user_attr(NUMBER, number)
    progress = Progress(trial, objectives)
    for result in results:
        progress.add(result)
    if reason is not None:
        trial.set_user_attr(REASON, reason)
    elif state != TrialState.RUNNING:
        progress.set_constraints()
    if state != TrialState.RUNNING:
        told.tell(trial, (progress.values or values) if state == TrialState.COMPLETE else None, state)
    return told.get_trials()[0]


def rewrite(folder: Path, name: str, before: Space, after: Space, lookup: Lookup, *, reopen: bool) -> None:
    """Put a study of another space in the place of one: the same trials, under the same numbers; whole, or not at all.
    Samplers only take trials to be of one space that were sampled with the same ranges.

    Args:
        folder: The sweep's.
        name: Of the study.
        before: The space that its trials were sampled from.
        after: A wider one.
        lookup: The config's own values.
        reopen: Finished trials are to go on.
    """
    _write_anew(folder / STUDY_FILE, name, lambda trial: _in_space(trial, before, after, lookup, reopen=reopen))


def forget_half_sampled(path: Path, storage: JournalStorage, name: str) -> bool:
    """A trial whose driver died while it asked for values is left without any; whether there was one, for which the
    file was written anew. Asked again, a sampler that is seeded by trial gives it the same as if nothing had happened;
    with a part of them known, it would give it others."""
    if name not in optuna.get_all_study_names(storage):
        return False
    trials = optuna.load_study(study_name=name, storage=storage).get_trials(states=(TrialState.RUNNING,))
    if not any(_is_half_sampled(trial) for trial in trials):
        return False
    _write_anew(path, name, lambda trial: _without_values(trial) if _is_half_sampled(trial) else trial)
    return True


def _is_half_sampled(trial: FrozenTrial) -> bool:
    return trial.state == TrialState.RUNNING and NUMBER not in trial.user_attrs and bool(trial.params)


def _without_values(trial: FrozenTrial) -> FrozenTrial:
    trial.params, trial.distributions = {}, {}
    return trial


def _write_anew(path: Path, name: str, convert: Callable[[FrozenTrial], FrozenTrial]) -> None:
    """Replaces a study by one with other trials in the same places; whole, or not at all."""
    storage, _ = open_journal(path)
    study = optuna.load_study(study_name=name, storage=storage)
    with replacing(path) as unfinished:
        to = JournalStorage(JournalFileBackend(str(unfinished)))
        new = optuna.create_study(study_name=name, storage=to, directions=study.directions)
        for key, value in study.user_attrs.items():
            new.set_user_attr(key, value)
        copy_system_attributes(study, new)
        for trial in study.get_trials():
            new.add_trial(convert(trial))


def _in_space(trial: FrozenTrial, before: Space, after: Space, lookup: Lookup, *, reopen: bool) -> FrozenTrial:
    """The trial as if it had been sampled from a wider space."""
    if trial.state == TrialState.WAITING:
        values = enqueued_values(trial) or {}
        set_enqueued_values(trial, {path: _recoded(path, value, before, after) for path, value in values.items()})
        return trial
    try:
        point = before.sample(trial, lookup)
    except ValueError:  # its driver died while it was sampled, and it was turned down
        return _without_values(trial)
    sampled = optuna.create_study()
    sampled.enqueue_trial(after.encode(point))
    after.sample(sampled.ask(), lookup)
    again = sampled.get_trials()[0]
    trial.params, trial.distributions = again.params, again.distributions
    if reopen and trial.state == TrialState.COMPLETE:
        trial.state, trial.values, trial.datetime_complete = TrialState.RUNNING, None, None
        trial.user_attrs = decisions_if_longer(trial.user_attrs)
    return trial


def _recoded(path: str, value: Any, before: Space, after: Space) -> Any:
    """An ordered choice is held as its place among the choices."""
    old, new = before.distributions.get(path), after.distributions.get(path)
    if isinstance(old, OrdinalDistribution) and isinstance(new, OrdinalDistribution):
        return new.choices.index(old.choices[value])
    return value
