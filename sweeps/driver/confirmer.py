"""Confirmation of a sweep's winner: its best trials are trained again with other seeds, fewest runs first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from sweeps.constants import SEED, TAG_CONFIRMATION
from sweeps.driver.session import Session
from sweeps.driver.sweep_state import SweepState
from sweeps.driver.trial_status import TrialStatus
from sweeps.plan.plan import Plan
from sweeps.search.confirmation_race import MAX_RUNS, MIN_RUNS, Race, race
from sweeps.texts.wording import counted
from sweeps.tracking.confirmation_record import Confirmation, Contender, to_text

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Repeat:
    """Repeated training of one of the best trials."""

    original: TrialStatus
    run: int
    """Number of this repeat among the trial's repeats, from 1."""

    @property
    def trial(self) -> str:
        """Id of the repeat, such as ``0007r2``. The id is reproducible, so that a resumed sweep does not train the
        repeat again after its driver was killed."""
        return f"{self.original.trial}r{self.run}"

    def parameters(self, seed: int) -> dict[str, Any]:
        """Return the repeated trial's parameters, with the seed of this repeat, which is the same for all contenders.

        Args:
            seed: Seed of the sweep.
        """
        return {**self.original.parameters, SEED: (seed + self.run) % 2**32}


class Confirmer:
    """Decides the next repeats and the winner of a confirmation from the sweep's state alone."""

    def __init__(self, state: SweepState, number: int):
        """
        Args:
            state: State of a sweep whose search has ended.
            number: Number of trials to compare.
        """
        self._state = state
        self._contenders = best_trials(state, number)

    @property
    def names(self) -> list[str]:
        """Ids of the compared trials, the best one first."""
        return [each.trial for each in self._contenders]

    def missing(self) -> list[Repeat]:
        """The repeats that can start now, including those that an earlier session left unfinished."""
        now = self._race()
        if not now.next:
            return []
        values = self._values()
        needed = {name: max(MIN_RUNS, len(values[name]) + (name in now.next)) for name in now.in_race}
        found = [
            Repeat(original, run)
            for run in range(1, MAX_RUNS + 1)
            for original in self._contenders
            if run <= needed.get(original.trial, 0)
        ]
        return [each for each in found if not (known := self._state.trials.get(each.trial)) or known.state == "waiting"]

    def is_over(self) -> bool:
        """Whether no further repeat is needed."""
        return len(self._contenders) < MIN_RUNS or not self._race().next

    def result(self, reason: str | None = None) -> Confirmation:
        """Return the result so far.

        Args:
            reason: Reason why the confirmation ends early, if it does.
        """
        if len(self._contenders) < MIN_RUNS:
            count = len(self._contenders) or "none"
            reason = f"two trials with a value and different parameters are needed, and there is {count}"
            return Confirmation(contenders=(), reason=reason)
        now, values, failed = self._race(), self._values(), self._failed()
        contenders = []
        for name in (*now.in_race, *now.out, *failed):
            found = now.estimates.get(name)
            mean: dict[str, Any] = {"runs": len(values[name])} if found is None else asdict(found)
            contenders.append(Contender(trial=name, **mean, lost_to=now.out.get(name), failed=failed.get(name)))
        winner = now.in_race[0] if now.in_race and not now.next else None
        if now.next:
            ended = sum(each.has_ended for each in self._state.repeats)
            reason = f"{reason or 'it continues'}; {counted(ended, 'repeat')} ended"
        elif winner is None:
            reason = "a repeat of every contender failed"
        else:
            reason = None
        return Confirmation(contenders=tuple(contenders), winner=winner, reason=reason, confidence=CONFIDENCE)

    def _race(self) -> Race:
        mode = self._state.objectives.modes[0]
        return race(mode, self._values(), failed=self._failed().keys(), max_runs=MAX_RUNS, confidence=CONFIDENCE)

    def _repeats(self, name: str) -> list[TrialStatus]:
        """The repeats of a trial that have started, in order."""
        ids = (f"{name}r{run}" for run in range(1, MAX_RUNS + 1))
        return [self._state.trials[each] for each in ids if each in self._state.trials]

    def _values(self) -> dict[str, list[float]]:
        """Values of each contender's repeats, in the order of their seeds, up to the first that has not finished."""
        return {name: [*self._finished(name)] for name in self.names}

    def _finished(self, name: str) -> Iterator[float]:
        for each in self._repeats(name):
            if each.state != "finished" or each.value is None or each.violation is not None:
                return
            yield each.value

    def _failed(self) -> dict[str, str]:
        """Contenders that cannot win, with reasons."""
        found = {}
        for name in self.names:
            for each in self._repeats(name):
                if (reason := self._failure(each)) is not None:
                    found[name] = f"its repeat {each.trial} {reason}"
                    break
        return found

    def _failure(self, repeat: TrialStatus) -> str | None:
        if repeat.state == "failed":
            return f"failed: {repeat.error}"
        if repeat.state == "stopped" and not self._state.shutdown.interrupts_trials():
            return "was stopped by a person"
        if repeat.state == "finished" and repeat.violation is not None:
            return f"is out of bounds: {repeat.violation}"
        if repeat.state == "finished" and repeat.value is None:
            return f"reported no finite {self._state.objectives.metrics[0]}"
        return None


def best_trials(state: SweepState, number: int) -> list[TrialStatus]:
    """Return a search's best trials, best first; of trials with equal parameters only the best one."""
    distinct: dict[str, TrialStatus] = {}
    for status in state.ranked(None):
        distinct.setdefault(json.dumps(status.parameters, sort_keys=True, default=str), status)
    return [*distinct.values()][:number]


def begin_unconfirmed(plan: Plan, session: Session) -> None:
    """Record that the winner is not confirmed, because its search begins or continues."""
    session.state.winner = None
    if plan.config.search.confirm:
        record(session, Confirmation(contenders=(), reason="the search has not ended"))


def begin_confirmation(plan: Plan, session: Session) -> Confirmer:
    """Wait until the ends of all trials are recorded, and choose the trials to compare."""
    state = session.state
    session.wait_for_ends()  # ends that never arrive do not count
    with state.lock:
        for status in state.repeats:
            if status.state == "stopped" and not status.is_unwanted:  # by an earlier end of the search in this session
                state.reopen(status.trial)
        confirmer = Confirmer(state, plan.config.search.confirm)
    if not confirmer.is_over() and not state.shutdown.interrupts_trials():
        state.announce(f"the best trials are trained again with other seeds: {', '.join(confirmer.names)}")
    return confirmer


def end_confirmation(session: Session, confirmer: Confirmer) -> None:
    """Record and show the winner, or why there is none."""
    state, shutdown = session.state, session.state.shutdown
    session.wait_for_ends()
    with state.lock:
        state.to_repeat = ()
        reason = shutdown.budget_spent or (f"the sweep was {shutdown.status}" if shutdown.status else None)
        result = confirmer.result(reason)
        state.winner = result.winner
    record(session, result)
    state.announce(result.describe())


def record(session: Session, result: Confirmation) -> None:
    session.recorder.attach({}, {TAG_CONFIRMATION: to_text(result)})
