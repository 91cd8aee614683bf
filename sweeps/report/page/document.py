"""HTML of the report: one file with its figures, its table and the library that draws them."""

from __future__ import annotations

import base64
import gzip
import json
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from sweeps.report.figures.section import Section
from sweeps.report.figures.style import DARK
from sweeps.report.forecast_text import forecast_lines
from sweeps.report.report_data import ReportData, tiles
from sweeps.report.terminal_tables import CONFIRMATION, confirmation_rows, mlflow_pages
from sweeps.texts.uri_passwords import redact_uri
from sweeps.tracking.mlflow_pages import server_address
from sweeps.tracking.mlflow_texts import describe_no_best
from sweeps.tracking.record import TrialRecord
from sweeps.tracking.stage_results import describe_stages
from sweeps.tracking.values import finite, short

ASSETS = Path(__file__).parent / "assets"
MOST_OF_FRONT = 10
MOST_ERRORS = 5
LARGEST_NUMBER = 2**53
"""Largest whole number up to which browsers read all of them exactly."""


def render(data: ReportData, sections: Sequence[Section]) -> str:
    """The whole page, which loads nothing from other files or servers."""
    record = data.record
    environment = Environment(loader=FileSystemLoader(ASSETS), autoescape=True, undefined=StrictUndefined)
    figures = {
        f"{section.slug}-{index}": json.loads(each.figure.to_json())
        for section in sections
        for index, each in enumerate(section.figures)
    }
    return environment.get_template("page.html").render(
        record=record,
        data=data,
        sections=sections,
        facts=_facts(data),
        tiles=tiles(data),
        front=[(trial, trial.all_values()) for trial in record.front[:MOST_OF_FRONT]],
        more_front=max(0, len(record.front) - MOST_OF_FRONT),
        no_best=describe_no_best(record),
        errors=_errors(record.all_trials),
        stages=describe_stages(record.stages),
        confirmation_columns=CONFIRMATION,
        confirmation_rows=confirmation_rows(record),
        forecast=forecast_lines(record),
        short=short,
        style=(ASSETS / "page.css").read_text(encoding="utf-8"),
        script=(ASSETS / "page.js").read_text(encoding="utf-8"),
        plotly=_plotly(),
        figures=_script_json(figures),
        dark=_script_json(DARK),
        table=_script_json(_table(data)),
        made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        version=version("ray-sweeps"),
    )


@cache
def _plotly() -> str:
    """Compressed plotly.js, two fifths of its size; browsers unpack it."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def _script_json(value: Any) -> str:
    """JSON for a script element; no text in it can end the element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _facts(data: ReportData) -> list[tuple[str, str]]:
    record = data.record
    facts = [
        ("config", record.conf),
        ("started", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(record.started))),
        ("goal", ", ".join(f"{mode} {metric}" for metric, mode in zip(record.metrics, record.modes, strict=True))),
        ("command", record.command),
        ("git commit", record.tags.get("mlflow.source.git.commit", "")),
        (
            "MLflow",
            f"{redact_uri(record.mlflow.tracking_uri)}, experiment {record.experiment}, run {record.mlflow.run_id}",
        ),
        *((name, _linked(page)) for name, page in mlflow_pages(record)),
    ]
    return [(name, text) for name, text in facts if text]


def _linked(page: str) -> str:
    """An address as a link, a command as plain text."""
    return Markup('<a href="{0}">{0}</a>').format(page) if page.startswith("http") else page


def _errors(trials: Sequence[TrialRecord]) -> list[tuple[str, int, str]]:
    """The most frequent errors, each with its text, number of trials, and first trial."""
    first: dict[str, str] = {}
    for trial in trials:
        if trial.error:
            first.setdefault(trial.error, trial.trial)
    counted = Counter(trial.error for trial in trials if trial.error)
    return [(error, count, first[error]) for error, count in counted.most_common(MOST_ERRORS)]


def _table(data: ReportData) -> Mapping[str, Any]:
    """Return the table of trials: columns, rows, and in ``runs`` the address before each run's id."""
    record = data.record
    best = {trial.trial for trial in record.front}
    columns = ["trial", "state", *record.metrics, "steps", "attempts", "seconds", *data.paths, "note"]
    rows = []
    for trial in record.trials:
        values = [finite(value) for value in trial.all_values()] or [None] * len(record.metrics)
        seconds = None if trial.ended is None else record.took(trial)
        took = None if seconds is None else round(seconds, 1)
        params = [_cell(trial.params[path]) if path in trial.params else None for path in data.paths]
        note = trial.error or trial.violation or ""
        rows.append([trial.trial, trial.state, *values, trial.steps, trial.attempts, took, *params, note])
    server = server_address(record.mlflow.tracking_uri)
    runs = "" if server is None else f"{server}/#/experiments/{record.mlflow.experiment_id}/runs/"
    return {
        "name": record.sweep,
        "columns": columns,
        "names": [data.names.get(column, column) for column in columns],
        "rows": rows,
        "best": sorted(best),
        "runs": runs,
        "ids": [trial.run_id for trial in record.trials] if runs else [],
        "ascending": record.mode == "min",
    }


def _cell(value: Any) -> Any:
    """Return a parameter's value as a number that browsers read exactly, or as text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
        return str(value)
    return value if isinstance(value, int | str) else json.dumps(value)
