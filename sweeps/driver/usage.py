"""Time and resources that a running sweep has used."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from sweeps.search.budget import Usage

if TYPE_CHECKING:
    from sweeps.driver.time_ledger import TimeLedger
    from sweeps.driver.trial_status import TrialStatus
    from sweeps.tracking.record import Session, SweepRecord

MOST_SESSIONS = 150
"""Maximum number of recorded sessions; MLflow allows 8,000 characters in a tag."""


class UsageMeter:
    """Counts wall time, training time, CPU and GPU seconds over all sessions of a sweep."""

    def __init__(self, earlier: SweepRecord | None, ledger: TimeLedger):
        self.used = Usage()
        self._ledger = ledger
        self._wall_s_before = self._train_s_before = 0.0
        self._sessions: tuple[Session, ...] = ()
        if earlier is not None:
            before = earlier.time
            self.used = Usage(before.wall_s, before.cpu_s, before.gpu_s, before.cost)
            self._wall_s_before, self._train_s_before = before.wall_s, before.train_s
            self._sessions = before.sessions or ((earlier.started, earlier.started + before.wall_s),)
        self._counted_at = time.monotonic()

    def count(self, holding: Collection[TrialStatus], workers: int, idle_workers: int, shared_by: int = 1) -> None:
        """Add the usage since the last call.

        Args:
            holding: The trials that hold workers.
            workers: Number of workers of all places, with and without a trial.
            idle_workers: Number of workers in places that will have no trial any more.
            shared_by: Number of trials that share the resources that each of them is recorded to hold.
        """
        now = time.monotonic()
        passed, self._counted_at = now - self._counted_at, now
        self.used.wall_s += passed
        self._ledger.pay(passed, workers, idle_workers)
        for status in holding:
            part = passed / shared_by
            self.used.cpu_s += part * status.holds.get("CPU", 0.0)
            self.used.gpu_s += part * status.holds.get("GPU", 0.0)
            self.used.cost += part * status.hourly_cost / 3600

    def summary(self, trials: Collection[TrialStatus], session_began: float) -> dict[str, Any]:
        """Return the totals of all sessions: ``wall_s``, ``train_s``, ``goodput``, ``account``, ``cpu_s``, ``gpu_s``,
        ``cost``, ``sessions``.

        ``train_s`` is summed over trials; ``account`` has worker-seconds by activity; ``goodput`` is the share that
        trained.
        """
        wall = self.used.wall_s
        train = self._train_s_before + sum(status.train_s for status in trials)
        account = self._ledger.account()
        return {
            "wall_s": wall,
            "train_s": train,
            "goodput": account.goodput,
            "account": account.as_json(),
            "cpu_s": self.used.cpu_s,
            "gpu_s": self.used.gpu_s,
            "cost": self.used.cost,
            "sessions": with_session(self._sessions, session_began, session_began + wall - self._wall_s_before),
        }


def with_session(earlier: Sequence[Session], began: float, ended: float) -> tuple[Session, ...]:
    """Return the earlier sessions, in order, and the current one; the oldest are merged if there are too many to
    record."""
    sessions = [*earlier, (round(began, 3), round(max(began, ended), 3))]
    while len(sessions) > MOST_SESSIONS:
        (first, end), (begin, last) = sessions[:2]
        ran = (end - first) + (last - begin)
        sessions[:2] = [(round(last - ran, 3), last)]
    return tuple(sessions)
