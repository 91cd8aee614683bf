"""The decisions of a scheduler, recorded in the study.

A driver that resumes a sweep rebuilds the scheduler's state from them and decides as if no driver had ever died.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import optuna
from optuna.trial import FrozenTrial, TrialState

from sweeps.compat.optuna import set_trial_attribute
from sweeps.constants import DECISION_PREFIX, NUMBER, ORIGIN_PREFIX, SECONDS, STEP
from sweeps.search.trial_ids import trial_id

ORDER, STOPS, STOPS_IF_LONGER, PAUSES = "order", "stops", "stops_if_longer", "pauses"
"""Keys of a decision: its position among all decisions of the sweep, whether it stops its trial, whether it would have
stopped the trial if that had not been complete, and whether it pauses the trial."""
LONGER = "longer"
"""Key in the record of a complete trial: true if the trial became longer afterwards."""
MOST_SUMMARIES = 2**14
"""Maximum number of trials whose summarised decisions are cached."""


BROKEN = "broken"
"""Key of the decision that stops a trial because it violated a limit; its value names the limit and the reported
value."""


class DecisionLog:
    """All decisions of a sweep's scheduler, in order.

    A decision is recorded after the report that it is based on, and before it is carried out: if the driver dies in
    between, a decision is recorded as a whole or not at all.
    """

    def __init__(self, study: optuna.Study | None = None, *, named: Callable[[int], str] = trial_id):
        """
        Args:
            study: Study that holds the decisions; default: they are not kept.
            named: Returns the id of a trial, by its number within its search.
        """
        self._study, self._named = study, named
        self._frozen: dict[str, FrozenTrial] = {}
        found: list[tuple[int, str | None, dict[str, Any]]] = []
        if study is not None:
            for trial in study.get_trials(deepcopy=False):
                if NUMBER in trial.user_attrs:
                    self._frozen[named(trial.user_attrs[NUMBER])] = trial
            found += [(order, None, event) for order, event in _decisions(study.user_attrs)]
            for number, trial in self._frozen.items():
                found += [(order, number, event) for order, event in _decisions(trial.user_attrs)]
        found.sort(key=lambda each: each[0])
        self._next = found[-1][0] + 1 if found else 0
        self.events = [(number, event) for _, number, event in found]
        """Decisions of earlier sessions, each with its trial's number (None if it does not concern a single trial)."""
        self.trials = frozenset(self._frozen)
        """Numbers of the trials of earlier sessions."""

    @property
    def count(self) -> int:
        """Number of decisions so far, in all sessions."""
        return self._next

    def record(self, number: str | None, event: Mapping[str, Any]) -> None:
        """Record a decision; it is on the disk when this returns.

        Args:
            number: The trial's number; None if the decision is not about one trial.
            event: The decision, as JSON.
        """
        self._next += 1
        if self._study is None:
            return
        key = f"{DECISION_PREFIX}{self._next - 1}"
        if number is None:
            self._study.set_user_attr(key, dict(event))
            return
        if number not in self._frozen:
            self._frozen[number] = self._newest(self._study, number)
        set_trial_attribute(self._study, self._frozen[number], key, dict(event))

    def with_order(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return a decision with its position, for a caller that records it together with other data."""
        self._next += 1
        return {**event, ORDER: self._next - 1}

    def _newest(self, study: optuna.Study, number: str) -> FrozenTrial:
        """Return the trial started in this session that has a given id, searched from the newest."""
        trials = (trial for trial in reversed(study.get_trials(deepcopy=False)) if NUMBER in trial.user_attrs)
        return next(trial for trial in trials if self._named(trial.user_attrs[NUMBER]) == number)


def judged_steps(trial: FrozenTrial) -> frozenset[int]:
    """Return the recorded steps at which a scheduler has decided whether a trial continues."""
    return _summary(trial).steps


def was_stopped(trial: FrozenTrial) -> bool:
    """Whether the last decision about a trial stops it, even if its driver died before carrying it out."""
    return bool(_summary(trial).last.get(STOPS))


def seconds_for_a_unit(trial: FrozenTrial) -> float | None:
    """Return the seconds of training per unit of the resource, by the last decision about a trial that contains them;
    None if there is none. They are recorded by schedulers that pause trials, if the search has a budget of time."""
    return _summary(trial).seconds


def is_paused(trial: FrozenTrial) -> bool:
    """Whether the last decision about a trial pauses it."""
    return bool(_summary(trial).last.get(PAUSES))


def is_running(trial: FrozenTrial) -> bool:
    """Whether a trial trains now. A paused trial does not, and its values so far are known."""
    return trial.state is TrialState.RUNNING and not is_paused(trial)


class _Summary(NamedTuple):
    """Summary of the decisions about a trial, for samplers."""

    last: Mapping[str, Any]
    """The last decision; empty if there was none."""
    steps: frozenset[int]
    """Steps at which a decision was made."""
    seconds: float | None
    """Seconds of training per unit of the resource, by the last decision that contains them."""


class _SameAttributes:
    """Trial attributes compared by identity, so that a cache notices changes: a study makes a new dictionary for each
    change."""

    __slots__ = ("attributes", "size")

    def __init__(self, attributes: Mapping[str, Any]):
        self.attributes, self.size = attributes, len(attributes)

    def __hash__(self) -> int:
        return id(self.attributes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SameAttributes) and self.attributes is other.attributes and self.size == other.size


def _summary(trial: FrozenTrial) -> _Summary:
    return _summarised(_SameAttributes(trial.user_attrs))


@lru_cache(MOST_SUMMARIES)  # samplers ask for those of all trials at each suggestion
def _summarised(key: _SameAttributes) -> _Summary:
    decisions = [event for _, event in sorted(_decisions(key.attributes), key=lambda each: each[0])]
    seconds = [float(event[SECONDS]) for event in decisions if event.get(SECONDS)]
    return _Summary(
        last=decisions[-1] if decisions else {},
        steps=frozenset(int(event[STEP]) for event in decisions if STEP in event),
        seconds=seconds[-1] if seconds else None,
    )


def decisions_if_longer(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Adapt the attributes of a complete trial to the longer trial that it becomes when its sweep is extended."""
    longer = {
        f"{DECISION_PREFIX}{order}": {**event, STOPS: True} if event.get(STOPS_IF_LONGER) else {**event, LONGER: True}
        for order, event in _decisions(attributes)
        if event.get(STOPS_IF_LONGER) or event.get("event") == "done"
    }
    return {**attributes, **longer}


def encoded(value: float) -> float | str:
    """Return a number for JSON, which lacks infinity; ``float`` reads both forms."""
    return float(value) if math.isfinite(value) else str(float(value))


def _decisions(attributes: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    for name, value in attributes.items():
        if name.startswith(DECISION_PREFIX):
            yield int(name.removeprefix(DECISION_PREFIX)), value
        elif name.startswith(ORIGIN_PREFIX) and "decision" in value:
            yield value["decision"][ORDER], value["decision"]
