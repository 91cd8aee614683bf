"""Reads the trials of an Optuna study."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import IntDistribution
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from sweeps.config.warm_start import OptunaStudy
from sweeps.constants import CHOICES, NUMBER
from sweeps.errors import UserError
from sweeps.search.reported_values import violates_limit
from sweeps.space.distributions import ordered_choices
from sweeps.space.space import Space
from sweeps.texts.suggestions import did_you_mean
from sweeps.texts.uri_passwords import redact_uri
from sweeps.tracking.client import check_port, first_cause
from sweeps.tracking.uris import sqlite_path, sqlite_uri
from sweeps.warm_start.other_trial import OtherSearch, OtherTrial, address, existing_file

SQLITE = b"SQLite format 3\0"
"""First bytes of an SQLite database."""
USED = (TrialState.COMPLETE, TrialState.PRUNED)


def read_study(key: str, source: OptunaStudy, space: Space) -> OtherSearch:
    """Read the trials of a study. The value of a pruned trial is the best that it reported. The trials of Sweeps' own
    searcher have indices of ordered choices; in a study of an earlier release, which does not contain these choices,
    they are taken for those of this sweep's space.

    Raises:
        UserError: The storage, the study or the objective does not exist, or the storage cannot be read.
    """
    storage = _open(f"{key}.storage", address(f"{key}.storage", source.storage))
    known = sorted(optuna.get_all_study_names(storage))
    if not known:  # Optuna reads any other file as an empty journal
        raise UserError(
            f"{key}.storage={redact_uri(source.storage)}: contains no Optuna study; give an SQLite or journal file "
            "that Optuna has written, or the URL of a database"
        )
    if source.study is None and len(known) != 1:
        raise UserError(f"{key}.study: the storage has {len(known)} studies ({', '.join(known[:12])}); name one")
    name = known[0] if source.study is None else source.study
    if name not in known:
        raise UserError(f"{key}.study={name}: the storage has no such study{did_you_mean(name, known)}")
    study = optuna.load_study(study_name=name, storage=storage)
    objective = _objective(key, source, study)
    minimizes = study.directions[objective] == optuna.study.StudyDirection.MINIMIZE
    choices = ordered_choices(space.distributions) | study.user_attrs.get(CHOICES, {})
    trials = [_trial(trial, objective, choices, minimizes=minimizes) for trial in study.get_trials(deepcopy=False)]
    return OtherSearch(name, trials, "min" if minimizes else "max", "the objective")


def _objective(key: str, source: OptunaStudy, study: optuna.Study) -> int:
    """Return the index of the objective.

    Raises:
        UserError: The study has several objectives and none was chosen, or has fewer than the chosen number.
    """
    count = len(study.directions)
    names = f" ({', '.join(study.metric_names)})" if study.metric_names else ""
    if source.objective is None and count > 1:
        raise UserError(f"{key}.objective: the study has {count} objectives{names}; choose one by its number, from 0")
    objective = source.objective or 0
    if objective >= count:
        raise UserError(f"{key}.objective={objective}: the study has {count}{names}, numbered from 0")
    return objective


def _open(key: str, text: str) -> BaseStorage:
    """Open a storage without writing to it.

    Raises:
        UserError: The storage does not exist, or cannot be read.
    """
    path = sqlite_path(text)
    if path is None and "://" not in text:
        path = Path(text)
    path = None if path is None else existing_file(key, path)
    try:
        if path is None:
            check_port(text)
            return RDBStorage(text, skip_table_creation=True)
        with path.open("rb") as file:
            is_sqlite = file.read(len(SQLITE)) == SQLITE
        if is_sqlite:
            return RDBStorage(sqlite_uri(path), skip_table_creation=True)
        return JournalStorage(JournalFileBackend(str(path)))
    except Exception as error:
        raise UserError(
            f"{key}={redact_uri(text)}: is not a storage of Optuna {optuna.__version__} that can be read "
            f"({type(error).__name__}: {first_cause(error)}); give an SQLite or journal file, or the URL of a database "
            "(`optuna storage upgrade` converts one of an older version)"
        ) from error


def _trial(trial: FrozenTrial, objective: int, choices: Mapping[str, Sequence[Any]], *, minimizes: bool) -> OtherTrial:
    unusable = None if trial.state in USED else f"state {trial.state.name}"
    params = dict(trial.params)
    for name in choices if NUMBER in trial.user_attrs else ():
        match trial.distributions.get(name):
            case IntDistribution(low=0, high=high) if high == len(choices[name]) - 1:
                params[name] = choices[name][params[name]]
            case IntDistribution(low=0, high=high):
                unusable = unusable or f"{name} is one of {high + 1} ordered choices that the study does not tell"
    if unusable is None and violates_limit(trial):
        unusable = "it violates a constraint"
    if trial.state is TrialState.COMPLETE:
        values = [trial.values[objective]]
    else:
        values = [value for value in trial.intermediate_values.values() if not math.isnan(value)]
    best = (min(values) if minimizes else max(values)) if values else None
    return OtherTrial(params, best, unusable)
