"""Contents of a sweep's page."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from sweeps.constants import TAG_DASHBOARD
from sweeps.redact import redact_uri
from sweeps.report.formatting import duration
from sweeps.report.page.tiles import tiles
from sweeps.report.report_data import ReportData
from sweeps.service.auth.principal import Principal
from sweeps.service.queue.jobs import Job
from sweeps.service.record_cache import Snapshot
from sweeps.service.web.actions import Action, actions_of
from sweeps.service.web.learning_curves_svg import CurvesChart
from sweeps.service.web.rows import Row
from sweeps.service.web.trials_table import TrialsTable
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.summary import short_names

MOST_ERRORS = 3


@dataclass(frozen=True, kw_only=True)
class Link:
    """Link button."""

    word: str
    href: str
    away: bool = False
    """Whether it leads to another site, which opens in a new tab."""


@dataclass(frozen=True, kw_only=True)
class Fact:
    """Line about the sweep: a text, or a time."""

    label: str
    text: str = ""
    at: float | None = None
    code: bool = False


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Key number."""

    label: str
    value: str
    more: str
    bar: Mapping[str, int] | None = None


@dataclass(frozen=True, kw_only=True)
class SweepView:
    """Everything that the template shows."""

    name: str
    status: str
    progress: str
    trouble: str
    """Reason why the record is out of date; empty if it is not."""
    taken: float
    """Unix time at which the record was read."""
    errors: Sequence[str]
    actions: Sequence[Action]
    links: Sequence[Link]
    facts: Sequence[Fact]
    tiles: Sequence[Tile]
    planned: int | None
    record: SweepRecord | None
    """Record of the sweep; None if it has not started."""
    chart: CurvesChart | None
    table: TrialsTable | None
    names: Mapping[str, str]
    """Short names of the best trial's parameters."""
    run_address: Callable[[str], str] | None
    """Function from a run's id to its address in MLflow."""


@dataclass(frozen=True, kw_only=True)
class ExternalSites:
    """Addresses of MLflow and of Ray's dashboard; None if there is none."""

    mlflow: str | None
    ray: str | None


def sweep_view(
    row: Row,
    seen: Snapshot[SweepRecord] | None,
    chart: CurvesChart | None,
    table: TrialsTable | None,
    principal: Principal,
    sites: ExternalSites,
) -> SweepView:
    """Contents of the page.

    Args:
        row: The sweep's row in the list.
        seen: Cached record of the sweep; None if it has not started.
        chart: Its learning curves.
        table: Its trials.
        principal: The user.
        sites: Addresses of other sites.
    """
    record = seen.content if seen is not None else None
    mlflow, runs = sites.mlflow, None
    if record is not None and mlflow is not None:
        runs = f"{mlflow}/#/experiments/{record.mlflow.experiment_id}/runs/"
    status = row.status if record is None else record.status
    return SweepView(
        name=row.sweep,
        status=status,
        progress=_progress(row, record),
        trouble=redact_uri(seen.trouble) if seen is not None else "",
        taken=seen.taken if seen is not None else time.time(),
        errors=_errors(row, record),
        actions=actions_of(row, status, record) if principal.may("run") else [],
        links=_links(row, record, runs, sites.ray),
        facts=_facts(row, record, mlflow),
        tiles=_tiles(record) if record is not None else [],
        planned=record.planned if record is not None else None,
        record=record,
        chart=chart,
        table=table,
        names=short_names(record.best.params) if record is not None and record.best is not None else {},
        run_address=(lambda run: f"{runs}{run}") if runs is not None else None,
    )


def _progress(row: Row, record: SweepRecord | None) -> str:
    if record is None:
        return {"queued": "It waits in the queue.", "starting": "Its driver is starting."}.get(
            row.status, "It never started."
        )
    ended = sum(count for state, count in record.counts.items() if state != "running")
    if record.status != "running":
        return row.note
    text = f"{ended:,} of {record.planned:,} trials" if record.planned else f"{ended:,} trials"
    if record.planned and 0 < ended < record.planned:
        left = record.time.wall_s / ended * (record.planned - ended)
        return f"{text}, at most about {duration(left)} left"
    return text


def _errors(row: Row, record: SweepRecord | None) -> list[str]:
    found = [row.latest.error] if row.latest is not None and row.latest.error else []
    trials = record.trials if record is not None else []
    errors = [trial.error for trial in trials if trial.error]
    if errors and record is not None and record.status == "failed":
        found += list(dict.fromkeys(errors))[:MOST_ERRORS]
    return found


def _links(row: Row, record: SweepRecord | None, runs: str | None, ray: str | None) -> list[Link]:
    links = [Link(word="Run again", href=f"/submit?like={quote(row.sweep)}")]
    if record is not None:
        links.append(Link(word="Report", href=f"{row.href}/report"))
        links.append(Link(word="Compare", href=f"/compare?sweep={quote(row.sweep)}"))
    if record is not None and runs is not None:
        links.append(Link(word="MLflow", href=f"{runs}{record.mlflow.run_id}", away=True))
    if record is not None and record.status == "running":
        dashboard = ray or record.tags.get(TAG_DASHBOARD, "")
        if dashboard.startswith(("http://", "https://")):  # anyone who can write to the store can set the tag
            links.append(Link(word="Ray dashboard", href=dashboard, away=True))
    return links


def _facts(row: Row, record: SweepRecord | None, mlflow: str | None) -> list[Fact]:
    facts = [Fact(label="config", text=row.conf)]
    facts += _of_job(row.owner) if row.owner is not None else []
    if record is not None:
        goal = " and ".join(f"{mode} of {metric}" for metric, mode in zip(record.metrics, record.modes, strict=True))
        facts += [Fact(label="started", at=record.started), Fact(label="goal", text=goal)]
        facts += [Fact(label="command", text=record.command, code=True)] if record.command else []
        facts += [Fact(label="experiment", text=record.experiment)] if record.experiment else []
        if mlflow is None:
            facts.append(Fact(label="MLflow", text="python -m sweeps ui", code=True))
    elif row.owner is not None:
        overrides = row.owner.request.get("overrides") or []
        facts += [Fact(label="overrides", text=" ".join(map(str, overrides)), code=True)] if overrides else []
    return facts


def _of_job(job: Job) -> list[Fact]:
    facts = [Fact(label="by", text=f"{job.user}, for {job.project}"), Fact(label="submitted", at=job.submitted)]
    if job.schedule:
        facts.append(Fact(label="schedule", text=job.schedule))
        facts += [Fact(label="was due", at=job.due)] if job.due is not None else []
    if job.end_by is not None:
        facts.append(Fact(label="must end by", at=job.end_by))
    if job.priority:
        facts.append(Fact(label="priority", text=str(job.priority)))
    return facts


def _tiles(record: SweepRecord) -> list[Tile]:
    return [
        Tile(label=label, value=value, more=more, bar=record.counts if label == "trials" else None)
        for label, value, more in tiles(ReportData(record=record))
    ]
