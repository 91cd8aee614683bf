"""The page: one HTML file with its figures, its table and the library that draws them."""

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
from plotly.offline import get_plotlyjs

from sweeps.redact import redact_uri, without_credentials
from sweeps.report.page.drawing import Section
from sweeps.report.page.report_data import Material, values_of
from sweeps.report.page.tiles import tiles
from sweeps.tracking.record import TrialRecord
from sweeps.tracking.summary import describe_no_best
from sweeps.tracking.values import finite, short

ASSETS = Path(__file__).parent / "assets"
MOST_FRONT = 10
MOST_ERRORS = 5


def render(material: Material, sections: Sequence[Section]) -> str:
    """The whole page. Nothing in it is loaded from elsewhere.

    Args:
        material: The sweep.
        sections: Its figures, in their order.
    """
    record = material.record
    environment = Environment(loader=FileSystemLoader(ASSETS), autoescape=True, undefined=StrictUndefined)
    figures = {
        f"{section.slug}-{index}": json.loads(drawing.figure.to_json())
        for section in sections
        for index, drawing in enumerate(section.drawings)
    }
    return environment.get_template("page.html").render(
        record=record,
        material=material,
        sections=sections,
        facts=_facts(material),
        tiles=tiles(material),
        front=[(trial, values_of(trial)) for trial in record.front[:MOST_FRONT]],
        more_front=max(0, len(record.front) - MOST_FRONT),
        no_best=describe_no_best(record),
        errors=_errors(record.trials),
        short=short,
        style=(ASSETS / "page.css").read_text(encoding="utf-8"),
        script=(ASSETS / "page.js").read_text(encoding="utf-8"),
        plotly=_plotly(),
        figures=_script_json(figures),
        table=_script_json(_table(material)),
        made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        version=version("ray-sweeps"),
    )


@cache
def _plotly() -> str:
    """plotly.js, compressed to two fifths; browsers unpack it themselves."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def _script_json(value: Any) -> str:
    """JSON that can stand in a script element: no text of a parameter can end it."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _facts(material: Material) -> list[tuple[str, str]]:
    record = material.record
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
    ]
    return [(name, text) for name, text in facts if text]


def _errors(trials: Sequence[TrialRecord]) -> list[tuple[str, int, str]]:
    """(error, how often, first trial), the most frequent first."""
    first: dict[str, str] = {}
    for trial in trials:
        if trial.error:
            first.setdefault(trial.error, trial.trial)
    counted = Counter(trial.error for trial in trials if trial.error)
    return [(error, count, first[error]) for error, count in counted.most_common(MOST_ERRORS)]


def _table(material: Material) -> Mapping[str, Any]:
    """Columns and rows of the table of trials; ``link`` makes an address of a run's id."""
    record = material.record
    best = {trial.trial for trial in record.front}
    columns = ["trial", "state", *record.metrics, "steps", "attempts", "seconds", *material.paths, "note"]
    rows = []
    for trial in record.trials:
        values = [finite(value) for value in values_of(trial)] or [None] * len(record.metrics)
        seconds = None if trial.ended is None else record.took(trial)
        took = None if seconds is None else round(seconds, 1)
        params = [_cell(trial.params.get(path)) for path in material.paths]
        note = trial.error or trial.violation or ""
        rows.append([trial.trial, trial.state, *values, trial.steps, trial.attempts, took, *params, note])
    uri = without_credentials(record.mlflow.tracking_uri)
    runs = f"{uri.rstrip('/')}/#/experiments/{record.mlflow.experiment_id}/runs/" if uri.startswith("http") else ""
    return {
        "name": record.sweep,
        "columns": columns,
        "names": [material.names.get(column, column) for column in columns],
        "rows": rows,
        "best": sorted(best),
        "runs": runs,
        "ids": [trial.run_id for trial in record.trials] if runs else [],
        "ascending": record.mode == "min",
    }


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, int | str) else json.dumps(value)
