"""Contents of a sweep's page."""

from __future__ import annotations

import time
from typing import Any, NamedTuple
from urllib.parse import quote

from sweeps.constants import TAG_DASHBOARD, TAG_ENDED
from sweeps.plan.complete_sweep import WIDER, extension
from sweeps.provenance.redaction import redacted
from sweeps.report.forecast_text import forecast_lines, time_left
from sweeps.report.report_data import ReportData, tiles
from sweeps.service.queue.jobs import Job
from sweeps.service.record_cache import Snapshot
from sweeps.service.web.sweep_rows import Row
from sweeps.texts.uri_passwords import redact_uri
from sweeps.texts.wording import counted
from sweeps.tracking.mlflow_pages import trials_page
from sweeps.tracking.mlflow_texts import short_names
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.stage_results import describe_stages

MOST_ERRORS = 3


class Link(NamedTuple):
    """A link shown as a button."""

    word: str
    href: str
    away: bool = False
    """Whether the link leads to another site, which opens in a new tab."""


class Fact(NamedTuple):
    """Line about a sweep or schedule: text or a time."""

    label: str
    text: str = ""
    at: float | None = None
    code: bool = False


class ExternalSites(NamedTuple):
    """Addresses of MLflow and of Ray's dashboard; None if there is none."""

    mlflow: str | None
    ray: str | None

    def runs(self, record: SweepRecord) -> str | None:
        """Beginning of the addresses of the runs of a sweep in MLflow; None if there is no server."""
        return None if self.mlflow is None else f"{self.mlflow}/#/experiments/{record.mlflow.experiment_id}/runs/"


def sweep_view(
    row: Row, seen: Snapshot[SweepRecord] | None, record: SweepRecord | None, sites: ExternalSites
) -> dict[str, Any]:
    """Variables of the page's template. The cached record (``seen``), and that record as ``settled`` returns it, are
    None if the sweep has not started."""
    mlflow, runs = sites.mlflow, sites.runs(record) if record is not None else None
    return {
        "name": row.sweep,
        "status": row.status if record is None or row.runs else record.status,
        "progress": _progress(row, record),
        "trouble": redact_uri(seen.trouble) if seen is not None else "",
        "taken": seen.taken if seen is not None else time.time(),
        "errors": _errors(row, record),
        "links": _links(row, record, mlflow, sites.ray),
        "facts": _facts(row, record, mlflow),
        "tiles": tiles(ReportData(record=record)) if record is not None else [],
        "record": record,
        "short_names": short_names(record.best.params) if record is not None and record.best is not None else {},
        "runs": runs,
    }


def further_change(record: SweepRecord) -> str:
    """Override that extends a complete sweep; empty if the user has to choose a wider range."""
    planned = record.planned or len(record.trials) or 1
    change, _ = extension(record.tags.get(TAG_ENDED, ""), planned, record.points)
    return "" if change == WIDER else change


def _progress(row: Row, record: SweepRecord | None) -> str:
    if record is None:
        words = {"queued": "It waits in the queue.", "starting": "Its driver is starting."}
        return words.get(row.status, "It never started.")
    ended = sum(count for state, count in record.counts.items() if state != "running")
    if record.status != "running":
        return row.note
    text = f"{ended:,} of {counted(record.planned, 'trial')}" if record.planned else counted(ended, "trial")
    if record.forecast is not None and record.forecast.wall_s is not None:
        return f"{text}, {time_left(record.forecast.after(time.time() - record.forecast.at))}"
    return text


def _errors(row: Row, record: SweepRecord | None) -> list[str]:
    found = [redacted(row.latest.error)] if row.latest is not None and row.latest.error else []
    trials = record.trials if record is not None else []
    errors = [trial.error for trial in trials if trial.error]
    if errors and record is not None and record.status == "failed":
        found += list(dict.fromkeys(errors))[:MOST_ERRORS]
    return found


def _links(row: Row, record: SweepRecord | None, mlflow: str | None, ray: str | None) -> list[Link]:
    links = [Link("Run again", f"/submit?like={quote(row.sweep)}")]
    if record is None:
        return links
    links += [Link("Report", f"{row.href}/report"), Link("Compare", f"/compare?sweep={quote(row.sweep)}")]
    if mlflow is not None:
        page = trials_page(record.mlflow.experiment_id, record.sweep, record.metrics[0], record.modes[0])
        links.append(Link("MLflow", f"{mlflow}/{page}", away=True))
    if record.status == "running":
        dashboard = ray or record.tags.get(TAG_DASHBOARD, "")
        if dashboard.startswith(("http://", "https://")):  # anyone who can write to the store can set the tag
            links.append(Link("Ray dashboard", dashboard, away=True))
    return links


def _facts(row: Row, record: SweepRecord | None, mlflow: str | None) -> list[Fact]:
    facts = [Fact("config", row.conf)]
    facts += _of_job(row.owner) if row.owner is not None else []
    if record is not None:
        goal = " and ".join(f"{mode} of {metric}" for metric, mode in zip(record.metrics, record.modes, strict=True))
        facts += [Fact("started", at=record.started), Fact("goal", goal)]
        facts += [Fact("confirmation", record.confirmation.describe())] if record.confirmation is not None else []
        facts += [Fact("stage", line.removeprefix("stage ")) for line in describe_stages(record.stages)]
        facts += [Fact("forecast", line.removeprefix("forecast: ")) for line in forecast_lines(record)]
        facts += [Fact("command", record.command, code=True)] if record.command else []
        facts += [Fact("experiment", record.experiment)] if record.experiment else []
        if mlflow is None:
            facts.append(Fact("MLflow", f"python -m sweeps ui {record.sweep}", code=True))
    elif row.owner is not None:
        overrides = row.owner.request.get("overrides") or []
        facts += [Fact("overrides", redacted(" ".join(map(str, overrides))), code=True)] if overrides else []
    return facts


def _of_job(job: Job) -> list[Fact]:
    facts = [Fact("by", f"{job.user}, for {job.project}"), Fact("submitted", at=job.submitted)]
    if job.schedule:
        facts.append(Fact("schedule", job.schedule))
        facts += [Fact("was due", at=job.due)] if job.due is not None else []
    if job.end_by is not None:
        facts.append(Fact("must end by", at=job.end_by))
    if job.priority:
        facts.append(Fact("priority", str(job.priority)))
    return facts
