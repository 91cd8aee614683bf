"""Time account of a running sweep: of its trials, computed from their workers' events, and of idle places."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sweeps.runtime.events import Report
from sweeps.tracking.record import last_update
from sweeps.tracking.time_account import TimeAccount
from sweeps.tracking.trial_history import Span

if TYPE_CHECKING:
    from sweeps.tracking.record import SweepRecord

SPENT = ("setup", "steps", "data_wait", "communication", "evaluation", "checkpoint")
"""Activities that the training loop times itself, from the start of the attempt: ``time/setup_s`` and so on."""
SPENT_METRICS = frozenset(f"time/{activity}_s" for activity in SPENT)
OF_STEPS = ("training", "data_wait", "communication")
"""Entries of the time account that together are the time of optimizer steps."""


@dataclass
class _Attempt:
    """An attempt that has not ended."""

    span: Span
    assigned: float
    """Unix time since which the attempt holds its workers, excluding time in which it waited for room."""
    reported: float
    """Unix time up to which the attempt's work is kept: of its newest report or, without the training loop, of its
    newest report with a checkpoint; before these, the start of the training."""
    spent: dict[str, float] | None = None
    """Seconds by activity until ``reported``; None if the training does not time itself."""

    def account(self, moment: float, rest: str) -> TimeAccount:
        """Compute worker-seconds until a moment.

        Args:
            moment: Unix time.
            rest: Part of the account to which the time since the last report belongs.
        """
        account = TimeAccount(start=max(0.0, self.span.trained - self.assigned))
        known = max(0.0, self.reported - self.span.trained)
        if self.spent is None:
            account.training += known
        else:
            _itemize(account, self.spent, known)
        setattr(account, rest, getattr(account, rest) + max(0.0, moment - self.reported))
        return account.times(self.num_workers)

    @property
    def num_workers(self) -> int:
        """Number of workers; 1 if they are unknown."""
        return max(1, len(self.span.workers))


def _itemize(account: TimeAccount, spent: Mapping[str, float], known: float) -> None:
    """Divide the seconds up to a report by activity, as timed by the workers; the rest counts as ``other``."""
    timed = spent["setup"] + spent["steps"] + spent["evaluation"] + spent["checkpoint"]
    fitted = min(1.0, known / timed) if timed else 0.0  # clocks of workers and driver may differ
    of_steps = max(0.0, spent["steps"] - spent["data_wait"] - spent["communication"])
    account.start += fitted * spent["setup"]
    account.training += fitted * of_steps
    for part in ("data_wait", "communication", "evaluation", "checkpoint"):
        setattr(account, part, fitted * spent[part])
    account.other += known - fitted * timed


class TrialTime:
    """Worker-seconds of one trial, in all attempts.

    The training loop times itself, and the checkpoint from which an attempt continues tells which steps were kept. For
    any other training, all time counts as training, except what a failed attempt did after its last checkpoint.
    """

    def __init__(self, earlier: TimeAccount | None = None, *, num_workers: int | None = 1):
        """
        Args:
            earlier: Account of the trial's attempts in earlier sessions.
            num_workers: Number of workers in all of these attempts; None if it varied.
        """
        self._ended = earlier or TimeAccount()
        """Account of the attempts that have ended."""
        self._attempt: _Attempt | None = None
        self._workers = num_workers or 1
        """Number of workers of the last ended attempt."""
        self._steps_s: float | None = None if num_workers is None else _of_steps(self._ended) / num_workers
        """Seconds that the ended attempts spent on optimizer steps; None if unknown."""
        self._waits_since: float | None = None
        self._exploits = 0
        self._exploited = False
        """Whether the current attempt is the first that continues from another trial's state."""
        self._of_others = 0.0
        """Seconds of optimizer steps in the trial's state that other trials have done."""

    @classmethod
    def restored(cls, earlier: TimeAccount, spans: Sequence[Span], session_ended: float) -> TrialTime:
        """Return the time account of a trial that an earlier session began.

        Args:
            earlier: Recorded account of the trial.
            spans: Recorded spans of the trial. The last one has no end if its driver was killed, and is not in the
                account; its work counts as lost until the next attempt shows what was kept.
            session_ended: Unix time of that driver's last sign of life.
        """
        numbers = {max(1, len(span.workers)) for span in spans} or {1}
        restored = cls(earlier, num_workers=numbers.pop() if len(numbers) == 1 else None)
        if spans and spans[-1].ended is None:
            restored.start(spans[-1], 0)
            restored.end(max(session_ended, spans[-1].trained), failed=True)
        return restored

    def wait(self, moment: float) -> None:
        """Record that the trial's workers wait for room because others use the resources."""
        self._waits_since = self._waits_since or moment

    def start(self, span: Span, exploits: int) -> None:
        """Record when an attempt's training began.

        Args:
            span: Known times and workers of the attempt.
            exploits: Number of times that the trial has continued from another trial's state.
        """
        if self._attempt is not None:  # nobody was left to report its end
            self.end(span.held, failed=True)
        self._attempt = _Attempt(span, span.held, span.trained)
        if self._waits_since is not None:
            waited = max(0.0, span.trained - max(span.held, self._waits_since))
            self._attempt.assigned += waited
            self._ended.waiting += waited * self._attempt.num_workers
            self._waits_since = None
        self._exploited, self._exploits = exploits != self._exploits, exploits

    def report(self, report: Report) -> None:
        """Account for the time up to a report. A late report of an earlier attempt is ignored."""
        attempt, moment = self._attempt, report.timestamp_ms / 1000
        if attempt is None or moment < attempt.span.trained:
            return
        if not report.metrics.keys() >= SPENT_METRICS:
            if report.checkpoint is not None:
                attempt.reported = moment
            return
        spent = {activity: report.metrics[f"time/{activity}_s"] for activity in SPENT}
        if attempt.spent is None:
            self._correct(report.progress.get("seconds", 0.0) - spent["steps"])
        attempt.reported, attempt.spent = moment, spent

    def end(self, moment: float, *, failed: bool) -> None:
        """Account for the end of the current attempt.

        Args:
            moment: Unix time.
            failed: Whether it failed, so that the work since its last report is lost, unless the next attempt shows
                that it was kept.
        """
        if self._attempt is None:
            return
        rest = "lost" if failed else "other" if self._attempt.spent is not None else "training"
        account, self._workers = self._attempt.account(moment, rest), self._attempt.num_workers
        self._ended.add(account)
        if self._steps_s is not None:
            self._steps_s += _of_steps(account) / self._workers
        self._attempt = None

    def account(self, now: float) -> TimeAccount:
        """Return the worker-seconds of all attempts until now."""
        account = replace(self._ended)
        if self._attempt is not None:
            account.add(self._attempt.account(now, "training"))
        return account

    def _correct(self, resumed: float) -> None:
        """Correct the lost work of earlier attempts once it is known where the current attempt continues.

        Args:
            resumed: Seconds of optimizer steps in the checkpoint from which the current attempt continues.
        """
        if self._exploited:
            self._exploited, self._of_others = False, resumed - (self._steps_s or 0.0)
            return
        own = resumed - self._of_others
        steps_s, self._steps_s = self._steps_s, own
        if steps_s is None:
            return
        missing = (own - steps_s) * self._workers
        if missing > 0:
            missing -= self._ended.move(missing, "lost", "training")
            self._ended.move(missing, "other", "training")
            return
        counted = _of_steps(self._ended)
        for part in OF_STEPS:
            share = getattr(self._ended, part) / counted if counted else 0.0
            self._ended.move(-missing * share, part, "lost")


def _of_steps(account: TimeAccount) -> float:
    """Return the worker-seconds of optimizer steps in an account."""
    return float(sum(getattr(account, part) for part in OF_STEPS))


class TimeLedger:
    """Counts all worker-seconds of a sweep, in all its sessions, by activity."""

    def __init__(self, earlier: SweepRecord | None):
        self._paid = self._idle_tail = 0.0
        self._trials: dict[str, TrialTime] = {}
        if earlier is None:
            return
        ended = last_update(earlier)
        for trial in earlier.all_trials:
            self._trials[trial.trial] = TrialTime.restored(trial.account or TimeAccount(), trial.spans, ended)
        if (account := earlier.time.account) is not None:
            self._paid, self._idle_tail = account.total, account.idle_tail

    def of(self, trial: str) -> TrialTime:
        return self._trials.setdefault(trial, TrialTime())

    def pay(self, seconds: float, workers: int, idle_workers: int) -> None:
        """Add the worker-seconds of a period.

        Args:
            seconds: Length of the period.
            workers: Number of workers of all places, with and without a trial.
            idle_workers: Number of workers in places that will have no trial any more.
        """
        self._paid += seconds * workers
        self._idle_tail += seconds * idle_workers

    def account(self) -> TimeAccount:
        """Return all worker-seconds until now."""
        total, now = TimeAccount(), time.time()
        for trial in self._trials.values():
            total.add(trial.account(now))
        without_trial = max(0.0, self._paid - total.total)
        total.idle_tail = min(self._idle_tail, without_trial)
        total.waiting += without_trial - total.idle_tail
        return total
