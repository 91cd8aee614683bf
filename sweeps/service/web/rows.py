"""The list of sweeps: what the store has of them and what was submitted, one row each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from sweeps.service.queue.jobs import Job
from sweeps.service.record_cache import SweepLine

TABS = {
    "": "All",
    "running": "Running",
    "queued": "Queued",
    "finished": "Finished",
    "failed": "Failed",
    "stopped": "Stopped",
}
"""Groups of states and how they are called."""
GROUPS = {"starting": "running", "interrupted": "failed", "cancelled": "stopped"}
"""States that are listed with others."""
ORDER = {"running": 0, "starting": 0, "queued": 1}
"""What lives comes first."""
LONGEST_NOTE = 160


@dataclass(frozen=True, kw_only=True)
class Row:
    """A sweep, or what is to become one."""

    sweep: str
    status: str
    """A sweep's state, or queued, starting or cancelled."""
    conf: str
    started: float
    """Unix time; of what has not started, when it was submitted."""
    note: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    planned: int | None = None
    best: float | None = None
    metric: str = ""
    wall_s: float | None = None
    owner: Job | None = None
    """The job whose it is; None of a sweep that was not submitted here."""
    latest: Job | None = None
    """The job that was last submitted for it."""
    recorded: bool = False
    """Whether the store has it."""

    @property
    def key(self) -> str:
        """Part of an element's id."""
        return re.sub(r"[^\w-]", "_", self.sweep)

    @property
    def href(self) -> str:
        return f"/sweeps/{quote(self.sweep)}"

    @property
    def group(self) -> str:
        """The tab that it is listed under."""
        return GROUPS.get(self.status, self.status)

    @property
    def user(self) -> str:
        return self.owner.user if self.owner is not None else ""

    @property
    def project(self) -> str:
        return self.owner.project if self.owner is not None else ""

    @property
    def waits(self) -> bool:
        """Whether a job of it is in the queue."""
        return self.latest is not None and self.latest.state == "queued"

    @property
    def place(self) -> tuple[int, int]:
        """Of what waits: the lower starts first."""
        return (-self.latest.priority, self.latest.id) if self.latest is not None else (0, 0)

    @property
    def ended(self) -> int:
        """Trials that have."""
        return sum(count for state, count in self.counts.items() if state != "running")

    @property
    def trials(self) -> str:
        """``12 of 40``."""
        return f"{self.ended:,} of {self.planned:,}" if self.planned else f"{self.ended:,}"

    @property
    def words(self) -> str:
        """Of its bar, for who cannot see it."""
        return ", ".join(f"{count} {state}" for state, count in self.counts.items() if count) or "no trial has ended"

    def holds(self, words: Sequence[str]) -> bool:
        """Whether all of these, in lower case, occur in it."""
        text = " ".join((self.sweep, self.conf, self.user, self.project, self.metric, self.status)).lower()
        return all(word in text for word in words)


def rows_of(sweeps: Sequence[SweepLine], jobs: Sequence[Job]) -> list[Row]:
    """
    Args:
        sweeps: As the store lists them.
        jobs: In any order.

    Returns:
        What runs, what waits in its order, and the others, the newest first.
    """
    latest = {job.sweep: job for job in sorted(jobs, key=lambda job: job.id)}
    rows = [_of_sweep(sweep, latest.pop(sweep.summary.sweep, None)) for sweep in sweeps]
    rows += [_of_job(job) for job in latest.values()]
    return sorted(rows, key=_rank)


def _rank(row: Row) -> tuple[float, ...]:
    return (ORDER["queued"], *row.place) if row.status == "queued" else (ORDER.get(row.status, 2), -row.started)


def _of_sweep(line: SweepLine, latest: Job | None) -> Row:
    sweep = line.summary
    waits = latest is not None and latest.state == "queued"
    return Row(
        sweep=sweep.sweep,
        status=sweep.status,
        conf=sweep.conf,
        started=sweep.started,
        note=f"{latest.verb} waits in the queue" if latest is not None and waits else "",
        counts=sweep.counts,
        planned=sweep.planned,
        best=sweep.best,
        metric=sweep.metrics[0],
        wall_s=sweep.wall_s,
        owner=line.job,
        latest=latest,
        recorded=True,
    )


def _of_job(job: Job) -> Row:
    """Submitted, and not in the store yet, or never."""
    error = (job.error or "").strip().partition("\n")[0]
    return Row(
        sweep=job.sweep,
        status="starting" if job.state == "running" else job.state,
        conf=str(job.request.get("conf") or job.verb),
        started=job.started or job.submitted,
        note=error if len(error) <= LONGEST_NOTE else f"{error[: LONGEST_NOTE - 1]}…",
        owner=job,
        latest=job,
    )
