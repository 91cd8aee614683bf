"""Decisions about trials at their reports: made once a report is recorded, sent to the broker, and executed by Tune."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ray.tune.result import AUTO_RESULT_KEYS

from sweeps.constants import COMPLETED, EVALUATIONS, FAILED, LINEAGE, RESTARTED, SAVED, STEP, STOPPED, TIME_OF_REPORT
from sweeps.errors import TrialFailed
from sweeps.runtime.answers import Answer
from sweeps.search.schedulers.scheduler import Exploit, Verdict

if TYPE_CHECKING:
    from sweeps.config.objectives import Objectives
    from sweeps.driver.retries import Retries
    from sweeps.driver.trial_status import TrialStatus
    from sweeps.runtime.driver_side import DriverSide
    from sweeps.runtime.events import Ended, Report, Started

OWN_KEYS = (STEP, EVALUATIONS, COMPLETED, STOPPED, FAILED, SAVED, LINEAGE, TIME_OF_REPORT, RESTARTED)
"""Keys of a Tune result that are not metrics."""

Decide = Callable[[str, Mapping[str, Any]], Verdict | Exploit]
"""Function that adds a trial's report to the search and decides about the trial."""


class Decisions:
    """Answers the reports of all trials and the ends of their attempts, in order. Each report is decided only once.

    An answer that makes a trial's actor return to Tune is kept until Tune has carried it out. If the actor or the
    broker dies before that, the next attempt gets the same answer.
    """

    def __init__(self, objectives: Objectives, retries: Retries, broker: DriverSide):
        self._objectives, self._retries, self._broker = objectives, retries, broker
        self._decide: Decide | None = None
        self._last: dict[str, Mapping[str, Any]] = {}
        """The newest report of each trial of this search."""
        self._reported: dict[str, float] = {}
        """Unix time of each trial's newest report."""
        self._undone: dict[str, Answer] = {}
        """Answers that Tune has not acted on."""
        self._over: dict[str, int] = {}
        """Newest attempt of each trial whose actor has returned; the attempt's workers may report until they notice
        that."""
        self._answers: list[Answer] = []
        """Answers that were not sent yet."""

    def begin(self, decide: Decide | None) -> None:
        """Begin a search with a function that decides about its trials; None: all trials train to their end."""
        self._decide = decide
        self._retries.begin()
        self._last.clear()
        self._reported.clear()
        self._undone.clear()
        self._over.clear()

    def started(self, event: Started) -> None:
        """Repeat the last answer to the trial's previous attempt if Tune has not acted on it."""
        if (undone := self._undone.get(event.trial)) is not None:
            self._add(replace(undone, attempt=event.attempt))

    def report(self, status: TrialStatus, report: Report) -> bool:
        """Answer a recorded report; return whether its attempt fails and another one begins."""
        if (undone := self._undone.get(report.trial)) is not None:
            self._add(replace(undone, attempt=report.attempt))
        elif report.attempt <= self._over.get(report.trial, 0):
            self._add(Answer(report.trial, report.attempt))
        else:
            answer = self._answer(status, report)
            self._add(answer)
            return bool(answer.tries_again)
        return False

    def ended(self, status: TrialStatus, event: Ended) -> bool:
        """Answer the recorded end of an attempt; return whether it has failed and another one begins."""
        over = self._over.get(event.trial, 0)
        tries_again = None
        if event.is_failure and event.attempt > over and not status.ending:
            tries_again = self._retries.allows(status, event.error or "", event.failure)
        self._add(Answer(event.trial, event.attempt, self._last.get(event.trial, {}), tries_again=tries_again))
        self._over[event.trial] = max(event.attempt, over)
        return bool(tries_again)

    def done(self, trial: str) -> None:
        """Record that Tune has acted on the last answer about a trial, or has ended it."""
        self._undone.pop(trial, None)

    def max_deaths(self, trial: str) -> int:
        """Return how many times a trial may be retried after losing its actor: once more while Tune has yet to act on
        the last answer, so that the trial's progress is not lost."""
        return self._retries.max_deaths(trial) + (trial in self._undone)

    def send(self) -> None:
        """Send the pending answers."""
        if self._answers:
            answers, self._answers = self._answers, []
            self._broker.answer(answers)

    def _add(self, answer: Answer) -> None:
        if answer.returns:
            self._over[answer.trial] = answer.attempt
        self._answers.append(answer)

    def _answer(self, status: TrialStatus, report: Report) -> Answer:
        trial = report.trial
        last = self._last.get(trial)
        if not report.competes:
            return Answer(trial, report.attempt)
        if not report.done and last is not None and not _is_news(status, report, last):
            self._retries.reported(status, report.step)
            return Answer(trial, report.attempt)
        try:
            check_metrics(report, self._objectives, is_first=not status.has_reported, lineage=status.lineage)
            self._retries.reported(status, report.step)
            result = result_of(report, status, self._reported.get(trial, 0.0))
            if report.done and last is not None and last[LINEAGE] == status.lineage:
                result = {**last, **result}  # an attempt that resumes after the last report may end without another one
            self._last[trial] = result
            self._reported[trial] = report.timestamp_ms / 1000
            decided = Verdict.CONTINUE if report.done or self._decide is None else self._decide(trial, result)
        except TrialFailed as error:
            status.failure = f"trial {trial}: {error}"
            again = self._retries.allows(status, str(error))
            return Answer(trial, report.attempt, returns=True, error=str(error), tries_again=again)
        if decided is Verdict.CONTINUE and not report.done:
            return Answer(trial, report.attempt)
        status.is_pruned = decided is Verdict.STOP
        answer = Answer(trial, report.attempt, result, returns=True, stops=status.is_pruned)
        self._undone[trial] = answer
        return answer


def result_of(report: Report, status: TrialStatus, before: float) -> dict[str, Any]:
    """Convert a report to the form of schedulers and Tune.

    Args:
        before: Unix time of the trial's previous report; 0 if there was none.
    """
    now = report.timestamp_ms / 1000
    held = status.spans[-1].held if status.spans else now  # unknown if the event of its start was lost
    return {
        **{name: value for name, value in report.metrics.items() if name not in AUTO_RESULT_KEYS},
        STEP: report.step,
        EVALUATIONS: math.ceil(report.step / status.eval_every),
        **report.progress,
        SAVED: report.saved,
        TIME_OF_REPORT: max(now - max(before, held), 0.0),
        RESTARTED: held > before,
        LINEAGE: status.lineage,
        COMPLETED: report.done,
        "done": report.done,
    }


def _is_news(status: TrialStatus, report: Report, last: Mapping[str, Any]) -> bool:
    """Whether a report needs a decision; a trial that continues from a checkpoint repeats reports that were decided."""
    return status.lineage != last[LINEAGE] or report.step > int(last[STEP])


def check_metrics(report: Report, objectives: Objectives, *, is_first: bool, lineage: int) -> None:
    """Check that a report has the metrics that the search reads.

    Raises:
        TrialFailed: The objective that schedulers judge is missing, or, in the trial's first report, another metric
            that the search reads; or such a metric has a reserved name.
    """
    metric = objectives.metrics[0]
    if report.done and (lineage or not is_first) and metric not in report.metrics:
        return  # resumed at another trial's end, or after its own last report, so it measured nothing
    needed = {name: f"search.limits={name}" for name in objectives.limits} if is_first else {}
    needed |= {name: f"search.metric={name}" for name in (objectives.metrics if is_first else (metric,))}
    if missing := [key for name, key in needed.items() if name not in report.metrics]:
        reported = ", ".join(sorted(report.metrics))
        verb = "is" if len(missing) == 1 else "are"
        raise TrialFailed(f"{' and '.join(missing)} {verb} not among the reported metrics: {reported}")
    if taken := {*AUTO_RESULT_KEYS, *OWN_KEYS, *report.progress}.intersection(needed):
        raise TrialFailed(
            f"{needed[min(taken)]} is a name that Sweeps or Ray Tune reserves; report it under another name"
        )
