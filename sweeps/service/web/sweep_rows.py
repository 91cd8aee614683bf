"""Rows of the list of sweeps, from the store's records and the submitted jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from sweeps.provenance.redaction import redacted
from sweeps.report.formatting import shorten
from sweeps.service.queue.jobs import Job
from sweeps.service.record_cache import SweepLine
from sweeps.texts.wording import counted_states

TABS = {
    "": "All",
    "running": "Running",
    "queued": "Queued",
    "finished": "Finished",
    "failed": "Failed",
    "interrupted": "Interrupted",
    "stopped": "Stopped",
}
"""Groups of states and their labels."""
GROUPS = {"starting": "running", "cancelled": "stopped"}
"""Group of the states that have no tab of their own."""
ORDER = {"running": 0, "starting": 0, "queued": 1}
"""Rank of states in the list; other states come last."""
LONGEST_NOTE = 160


@dataclass(frozen=True, kw_only=True)
class Row:
    """Row of a sweep or of a queued job."""

    sweep: str
    status: str
    """Status of the sweep, or ``queued``, ``starting`` or ``cancelled``. A sweep whose job is running is ``running``,
    although its record says otherwise while its driver starts or ends."""
    conf: str
    started: float
    """Unix time of the sweep's start, or of its submission if it has not started."""
    note: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    planned: int | None = None
    best: float | None = None
    metric: str = ""
    wall_s: float | None = None
    owner: Job | None = None
    """Job that created the sweep; None if it was not submitted to this service."""
    latest: Job | None = None
    recorded: bool = False
    """Whether the store has a record of the sweep."""

    @property
    def href(self) -> str:
        return f"/sweeps/{quote(self.sweep)}"

    @property
    def group(self) -> str:
        """Tab of the list under which the row is shown."""
        return GROUPS.get(self.status, self.status)

    @property
    def user(self) -> str:
        return self.owner.user if self.owner is not None else ""

    @property
    def project(self) -> str:
        return self.owner.project if self.owner is not None else ""

    @property
    def waits(self) -> bool:
        """Whether the sweep's latest job is in the queue."""
        return self.latest is not None and self.latest.state == "queued"

    @property
    def runs(self) -> bool:
        """Whether the sweep's latest job is running."""
        return self.latest is not None and self.latest.state == "running"

    @property
    def queue_key(self) -> tuple[int, int]:
        """Sort key of queued jobs: the lower starts first."""
        return (-self.latest.priority, self.latest.id) if self.latest is not None else (0, 0)

    @property
    def ended(self) -> int:
        """Number of trials that have ended."""
        return sum(count for state, count in self.counts.items() if state != "running")

    @property
    def trials(self) -> str:
        """Text such as ``12 of 40``."""
        return f"{self.ended:,} of {self.planned:,}" if self.planned else f"{self.ended:,}"

    @property
    def bar_text(self) -> str:
        """Text of the progress bar for screen readers."""
        return counted_states(self.counts) or "no trial has ended"

    def holds(self, words: Sequence[str]) -> bool:
        """Whether the row contains all of the words, which are in lower case."""
        text = " ".join((self.sweep, self.conf, self.user, self.project, self.metric, self.status)).lower()
        return all(word in text for word in words)


def rows_of(sweeps: Sequence[SweepLine], jobs: Sequence[Job]) -> list[Row]:
    """Rows of all sweeps and jobs: running, then queued in the queue's order, then the others, newest first."""
    latest = {job.sweep: job for job in sorted(jobs, key=lambda job: job.id)}
    rows = [_of_sweep(sweep, latest.pop(sweep.summary.sweep, None)) for sweep in sweeps]
    rows += [_of_job(job) for job in latest.values()]
    return sorted(rows, key=_rank)


def _rank(row: Row) -> tuple[float, ...]:
    return (ORDER["queued"], *row.queue_key) if row.status == "queued" else (ORDER.get(row.status, 2), -row.started)


def _of_sweep(line: SweepLine, latest: Job | None) -> Row:
    sweep, status, note = line.summary, line.summary.status, ""
    if latest is not None and latest.ended is not None and latest.ended < sweep.started:
        latest = None  # it failed before a sweep of this name began
    if latest is not None and latest.state == "queued":
        note = f"{latest.verb} waits in the queue"
    elif latest is not None and latest.state == "running" and status != "running":
        status, note = "running", "its driver is starting or ending"
    return Row(
        sweep=sweep.sweep,
        status=status,
        conf=sweep.conf,
        started=sweep.started,
        note=note,
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
    """Row of a job whose sweep is not in the store."""
    error = redacted(job.error or "").strip().partition("\n")[0]
    return Row(
        sweep=job.sweep,
        status="starting" if job.state == "running" else job.state,
        conf=str(job.request.get("conf") or job.verb),
        started=job.started or job.submitted,
        note=shorten(error, LONGEST_NOTE),
        owner=job,
        latest=job,
    )
