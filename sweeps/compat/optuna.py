"""Private names of Optuna."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from copy import copy
from copy import deepcopy as deep_copy
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.storages.journal._storage import JournalOperation, JournalStorageReplayResult
from optuna.study._constrained_optimization import _CONSTRAINTS_KEY
from optuna.trial import FrozenTrial, TrialState

FIXED_PARAMS = "fixed_params"
"""System attribute of an enqueued trial: the values that it was enqueued with."""
CMA_ES_PREFIXES = ("cma:", "sepcma:", "cmawm:")
"""Prefixes of the system attributes in which Optuna's CMA-ES keeps its state, scaled to the ranges of the space."""


def running_trial(study: optuna.Study, trial: FrozenTrial) -> optuna.Trial:
    """Return a running trial of the study, to continue it."""
    return optuna.Trial(study, trial._trial_id)


def set_trial_attribute(study: optuna.Study, trial: FrozenTrial, key: str, value: Any) -> None:
    """Set a user attribute of a running trial, without calling the sampler."""
    study._storage.set_trial_user_attr(trial._trial_id, key, value)


def set_note(study: optuna.Study, trial: FrozenTrial, key: str, value: Any) -> None:
    """Set a system attribute of the trial that a sampler samples for, as Optuna's own samplers do."""
    study._storage.set_trial_system_attr(trial._trial_id, key, value)


def enqueued_values(trial: FrozenTrial) -> Mapping[str, Any] | None:
    """Return the values that a trial was enqueued with; None if it was not enqueued."""
    values: Mapping[str, Any] | None = trial.system_attrs.get(FIXED_PARAMS)
    return values


def set_enqueued_values(trial: FrozenTrial, values: Mapping[str, Any]) -> None:
    """Replace the values that a waiting trial was enqueued with."""
    trial.system_attrs[FIXED_PARAMS] = dict(values)


def remove_constraints(trial: FrozenTrial) -> None:
    """Remove the constraint violations of a trial that is not in a study, since Optuna lets them be set only once."""
    for name in trial.constraints:
        trial.system_attrs.pop(f"{_CONSTRAINTS_KEY}:{name}", None)


def remove_cma_es_state(trial: FrozenTrial) -> None:
    """Remove CMA-ES's state from a trial that is not in a study; without it, CMA-ES begins anew."""
    for key in [each for each in trial.system_attrs if each.startswith(CMA_ES_PREFIXES)]:
        del trial.system_attrs[key]


def copy_system_attributes(study: optuna.Study, to: optuna.Study) -> None:
    """Copy the notes of samplers from one study to another."""
    for key, value in study._storage.get_study_system_attrs(study._study_id).items():
        to._storage.set_study_system_attr(to._study_id, key, value)


def sampled_at(logs: Sequence[Mapping[str, Any]]) -> dict[int, range]:
    """Return the positions in the journal of one study at which a trial's values may have been sampled, by its number
    (trials are numbered in the order of their creation): from its creation to its first value. Other trials may have
    reported meanwhile."""
    created: list[int] = []
    found: dict[int, range] = {}
    for position, entry in enumerate(logs):
        if entry["op_code"] == JournalOperation.CREATE_TRIAL:
            created.append(position)
        if entry["op_code"] == JournalOperation.SET_TRIAL_PARAM:
            found.setdefault(entry["trial_id"], range(created[entry["trial_id"]] + 1, position + 1))
    return found


class PlayedJournal(JournalStorage):
    """In-memory storage with the first entries of a journal. It can advance to later entries, which discards what was
    written to it."""

    def __init__(self, entries: Sequence[dict[str, Any]]):
        self._entries = _Entries(entries)
        super().__init__(self._entries)
        self._recorded = self._replay_result

    def play(self, position: int) -> None:
        """Advance to the state of the storage just before the entry at a position; positions must not decrease."""
        self._replay_result = self._recorded
        self._entries.end, self._entries.written = position, []
        self._sync_with_backend()
        self._replay_result = _forked(self._recorded)


class _Entries(BaseJournalBackend):
    """Journal backend in memory: the recorded entries up to a position, followed by entries that were written since."""

    def __init__(self, entries: Sequence[dict[str, Any]]):
        self._entries = entries
        self.end = 0
        self.written: list[dict[str, Any]] = []

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        return [*self._entries[log_number_from : self.end], *self.written[max(0, log_number_from - self.end) :]]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self.written += json.loads(json.dumps(logs))


def _forked(result: JournalStorageReplayResult) -> JournalStorageReplayResult:
    """Copy the storage, so that studies and trials of the copy can change without affecting the original. A shallow
    copy is enough, since Optuna replaces trials and study attributes instead of changing them in place."""
    fork = copy(result)
    fork._studies = {number: copy(study) for number, study in result._studies.items()}
    fork._trials = dict(result._trials)
    return fork


class StudyView(optuna.Study):
    """Study that shows a sampler the given trials instead of its own.

    Storage and identity are those of the study: samplers write notes to the trial that they sample for.
    """

    def __init__(self, study: optuna.Study, trials: Sequence[FrozenTrial]):
        """The trials are those of ``get_trials``, in the order of their numbers."""
        self.__dict__.update(study.__dict__)
        self._viewed_trials = trials

    def _get_trials(  # Optuna's samplers call this, and so does ``get_trials``
        self, deepcopy: bool = True, states: Container[TrialState] | None = None, use_cache: bool = False
    ) -> list[FrozenTrial]:
        viewed = [trial for trial in self._viewed_trials if states is None or trial.state in states]
        return deep_copy(viewed) if deepcopy else viewed
