"""Messages about ended sweeps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sweeps.config.notifications import Event
from sweeps.constants import TAG_ENDED
from sweeps.report.formatting import duration, shorten
from sweeps.texts.wording import counted_states
from sweeps.tracking.mlflow_pages import server_address
from sweeps.tracking.mlflow_texts import describe, describe_no_best
from sweeps.tracking.record import SweepRecord, SweepSummary

if TYPE_CHECKING:
    from sweeps.service.nights.night import Night

BUDGET = re.compile(r"search\.stop\.(wall_hours|gpu_hours|cost)\b")
MAX_LINE = 600
WORDS: dict[Event, str] = {
    "finished": "has ended",
    "failed": "has failed",
    "budget": "has used up its budget",
    "regression": "is worse than earlier nights",
    "promoted": "has made a new champion",
}


@dataclass(frozen=True)
class Message:
    """Title, lines and links of a message in plain text."""

    event: Event
    sweep: str
    title: str
    lines: Sequence[str]
    links: Sequence[tuple[str, str]]
    """Labels and addresses of links."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def of_sweep(
    record: SweepRecord,
    earlier: Iterable[SweepSummary] = (),
    *,
    night: Night | None = None,
    error: str | None = None,
    limit: str | None = None,
    page: str | None = None,
    mlflow: str | None = None,
) -> Message:
    """Return the message about a recorded sweep, compared with ``earlier`` ones. ``error`` is why its job failed, if
    that is not in the record; ``limit`` describes the time limit that has ended the job. The message links to the
    sweep's page, if readers can reach it, and to MLflow's pages for people, by default the tracking server."""
    event: Event = "failed" if error is not None else _event(record, night)
    if limit is not None and event not in ("regression", "promoted"):
        event = "budget"
    lines = [_best(record), night.reason if night is not None else _comparison(record, earlier), _trials(record)]
    ended = record.tags.get(TAG_ENDED, "")
    if (reason := error or limit) is not None:
        lines.append(shorten(reason, MAX_LINE))
    if record.status not in ("finished", "failed"):
        lines.append(f"It was {record.status}.")
    elif ended.startswith("search.") or "(search." in ended:
        lines.append(f"It started no further trial: {ended}.")
    lines += [shorten(f"Trial {trial.trial}: {trial.error}", MAX_LINE) for trial in record.trials if trial.error][:2]
    return Message(
        event, record.sweep, _title(record.sweep, event), [each for each in lines if each], _links(record, page, mlflow)
    )


def of_failure(sweep: str, error: str | None, page: str | None = None) -> Message:
    """Return the message about a sweep without a record: it could not start, or its driver died."""
    lines = [shorten(error or "Its driver gave no reason.", MAX_LINE)]
    return Message("failed", sweep, _title(sweep, "failed"), lines, [("sweep", page)] if page else [])


def _event(record: SweepRecord, night: Night | None) -> Event:
    if record.status == "failed" or record.best is None:
        return "failed"
    if night is not None and night.verdict == "regression":
        return "regression"
    if night is not None and night.verdict in ("first", "promoted"):
        return "promoted"
    return "budget" if BUDGET.match(record.tags.get(TAG_ENDED, "")) else "finished"


def _title(sweep: str, event: Event) -> str:
    return f"{sweep} {WORDS[event]}"


def _best(record: SweepRecord) -> str:
    if record.best is None:
        return describe_no_best(record)
    values = record.best.values or (record.best.value or 0.0,)
    reached = ", ".join(f"{metric} {value:.5g}" for metric, value in zip(record.metrics, values, strict=True))
    return shorten(f"Best: {reached}, trial {record.best.trial} ({describe(record.best.params)})", MAX_LINE)


def _comparison(record: SweepRecord, earlier: Iterable[SweepSummary]) -> str:
    """Compare the best value with that of earlier sweeps with the same config and metric."""
    if record.best is None or record.best.value is None:
        return ""
    objective = (record.conf, record.metrics, record.modes)
    alike = [
        (each.best, each.sweep)
        for each in earlier
        if each.best is not None
        and (each.conf, each.metrics, each.modes) == objective
        and each.sweep != record.sweep
        and each.started < record.started
    ]
    if not alike:
        return ""
    best, sweep = min(alike) if record.mode == "min" else max(alike)
    better = record.best.value < best if record.mode == "min" else record.best.value > best
    return f"{'Better' if better else 'Not better'} than the best of {len(alike)} before: {best:.5g} ({sweep})"


def _trials(record: SweepRecord) -> str:
    return f"Trials: {counted_states(record.settled().counts) or 'none'}, in {duration(record.time.wall_s)}"


def _links(record: SweepRecord, page: str | None, mlflow: str | None) -> list[tuple[str, str]]:
    links = [("sweep", page)] if page else []
    if (server := server_address(mlflow or record.mlflow.tracking_uri)) is not None:
        ids = record.mlflow
        links.append(("MLflow", f"{server}/#/experiments/{ids.experiment_id}/runs/{ids.run_id}"))
    return links
