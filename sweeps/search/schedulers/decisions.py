"""A scheduler's decisions, kept in the study: from them a driver that goes on with a sweep rebuilds the scheduler's
state, and decides as if no driver had ever ended."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import optuna
from optuna.trial import FrozenTrial

from sweeps.constants import COMPLETED, DECISION_PREFIX, NUMBER, ORIGIN_PREFIX, TRIAL

if TYPE_CHECKING:
    from ray.tune.experiment import Trial

ORDER, STOPS, STOPS_IF_LONGER = "order", "stops", "stops_if_longer"
"""Keys of a decision: its place among all of the sweep, whether it stops its trial, and whether it would have stopped a
trial that came to its end there."""


class Named(NamedTuple):
    """A trial as Tune's schedulers see it, by its number in the sweep: Tune's own ids change with every session."""

    trial_id: str

    @classmethod
    def of(cls, trial: Trial) -> Named:
        return cls(trial.config[TRIAL])


class History:
    """The decisions so far, in their order. A decision is kept before Tune acts on it, and after the report on which
    it rests: of a driver that dies in between, either all of a decision is left, or none of it."""

    def __init__(
        self,
        study: optuna.Study | None = None,
        *,
        hear: Callable[[str, dict[str, Any]], None] = lambda trial_id, result: None,
        interrupted: Callable[[], bool] = lambda: False,
    ):
        """
        Args:
            study: Where decisions are kept; default: nowhere.
            hear: Writes a report into the study, by Tune's id of the trial.
            interrupted: Whether the search is to be continued later.
        """
        self._study, self._hear, self._interrupted = study, hear, interrupted
        self._ids: dict[str, int] = {}
        found: list[tuple[int, str | None, dict[str, Any]]] = []
        if study is not None:
            found += [(order, None, event) for order, event in _decisions(study.user_attrs)]
            for trial in study.get_trials(deepcopy=False):
                if NUMBER in trial.user_attrs:
                    name = self._note(trial)
                    found += [(order, name, event) for order, event in _decisions(trial.user_attrs)]
        found.sort(key=lambda each: each[0])
        self._next = found[-1][0] + 1 if found else 0
        self.events = [(name, event) for _, name, event in found]
        """Decisions of the sessions before this one, with the trial's number; None if it is not about one trial."""
        self.trials = frozenset(self._ids)
        """Numbers of the trials of the sessions before this one."""

    def __reduce__(self) -> tuple[type[object], tuple[()]]:
        # Tune pickles its scheduler for a restore that we do not use; a study belongs to its driver.
        return object, ()

    def hear(self, trial: Trial, result: dict[str, Any]) -> None:
        """Keep a report, before it is decided on."""
        self._hear(trial.trial_id, result)

    def add(self, trial: str | None, event: Mapping[str, Any]) -> None:
        """Keep a decision; it is on the disk when this returns."""
        self._next += 1
        if self._study is None:
            return
        key = f"{DECISION_PREFIX}{self._next - 1}"
        if trial is None:
            self._study.set_user_attr(key, dict(event))
        else:
            self._study._storage.set_trial_user_attr(self._id(trial), key, dict(event))  # noqa: SLF001

    def ordered(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """A decision with its place, for a caller that keeps it together with something else."""
        self._next += 1
        return {**event, ORDER: self._next - 1}

    def goes_on_later(self, result: Mapping[str, Any] | None = None) -> bool:
        """Whether a trial that ends now is to be continued in another session."""
        return self._interrupted() and not (result or {}).get(COMPLETED)

    def _id(self, trial: str) -> int:
        if trial not in self._ids:
            assert self._study is not None
            for each in self._study.get_trials(deepcopy=False):
                if NUMBER in each.user_attrs:
                    self._note(each)
        return self._ids[trial]

    def _note(self, trial: FrozenTrial) -> str:
        name = f"{trial.user_attrs[NUMBER]:04}"
        self._ids[name] = trial._trial_id  # noqa: SLF001 - the storage goes by it
        return name


def was_stopped(trial: FrozenTrial) -> bool:
    """Whether the last decision about a trial stops it; its driver may have died before it did so."""
    _, last = max(_decisions(trial.user_attrs), key=lambda each: each[0], default=(0, {}))
    return bool(last.get(STOPS))


def decisions_of_longer(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a trial that had come to its end, and becomes a longer one."""
    longer = {
        f"{DECISION_PREFIX}{order}": {**event, STOPS: True}
        for order, event in _decisions(attributes)
        if event.get(STOPS_IF_LONGER)
    }
    return {**attributes, **longer}


def encoded(value: float) -> float | str:
    """A number for JSON, which has no infinity; ``float`` reads both."""
    return float(value) if math.isfinite(value) else str(float(value))


def _decisions(attributes: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    for name, value in attributes.items():
        if name.startswith(DECISION_PREFIX):
            yield int(name.removeprefix(DECISION_PREFIX)), value
        elif name.startswith(ORIGIN_PREFIX) and "decision" in value:
            yield value["decision"][ORDER], value["decision"]
