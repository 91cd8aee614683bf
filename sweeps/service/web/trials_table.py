"""Sortable, paginated table of a sweep's trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sweeps.report.terminal_tables import by_rank, took
from sweeps.service.web.paging import Page, page_of
from sweeps.tracking.mlflow_texts import parameter_names
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.tracking.values import finite, short

RANK = "rank"
"""Default sort key: best first."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """Column of the table: its texts and its sort key."""

    key: str
    """Name of the column in the page's address."""
    name: str
    title: str
    right: bool
    text: Callable[[TrialRecord], str]
    value: Callable[[TrialRecord], Any]
    """Sort key of a trial; None comes last in both directions."""


@dataclass(frozen=True, kw_only=True)
class TrialsTable:
    """One page of the table."""

    columns: Sequence[Column]
    shown: Page[TrialRecord]
    sort: str
    """Key of the sort column, or ``RANK``."""
    down: bool
    best: frozenset[str]
    notes: bool
    """Whether a shown trial failed or violated a limit."""


def trials_table(record: SweepRecord, sort: str, *, down: bool, page: int) -> TrialsTable:
    """One page of a sweep's trials, sorted by the column with this key, or by ``RANK``; ``down``: the highest first."""
    columns = _columns(record)
    by = next((column for column in columns if column.key == sort), None)
    shown = page_of(by_rank(record) if by is None else _sorted(record.trials, by.value, down=down), page)
    return TrialsTable(
        columns=columns,
        shown=shown,
        sort=RANK if by is None else by.key,
        down=down,
        best=frozenset(trial.trial for trial in record.front),
        notes=any(trial.error or trial.violation for trial in shown.rows),
    )


def _sorted(trials: Sequence[TrialRecord], value: Callable[[TrialRecord], Any], *, down: bool) -> Sequence[TrialRecord]:
    valued = [trial for trial in trials if value(trial) is not None]
    numbers = all(isinstance(value(trial), int | float) for trial in valued)
    ordered = sorted(valued, key=value if numbers else lambda trial: str(value(trial)), reverse=down)
    return [*ordered, *(trial for trial in trials if value(trial) is None)]


def _columns(record: SweepRecord) -> list[Column]:
    names = parameter_names(trial.params for trial in record.trials)
    has_retries = any(trial.attempts > 1 for trial in record.trials)

    def seconds(trial: TrialRecord) -> float | None:
        return None if trial.ended is None else record.took(trial)

    return [
        *(_metric(index, metric) for index, metric in enumerate(record.metrics)),
        _column("steps", "steps", lambda trial: trial.steps, lambda trial: f"{trial.steps:,}"),
        _column("took", "took", seconds, partial(took, record)),
        *([_column("attempts", "attempts", lambda trial: trial.attempts)] if has_retries else []),
        *(_parameter(path, name, record.trials) for path, name in names.items()),
    ]


def _metric(index: int, metric: str) -> Column:
    def value(trial: TrialRecord) -> float | None:
        values = trial.all_values()
        return values[index] if index < len(values) else None

    def text(trial: TrialRecord) -> str:
        return "" if (found := value(trial)) is None else f"{found:.5g}"

    return _column(f"metric{index}", metric, lambda trial: finite(value(trial)), text)  # NaN has no place in an order


def _parameter(path: str, name: str, trials: Sequence[TrialRecord]) -> Column:
    def value(trial: TrialRecord) -> Any:
        return trial.params.get(path)

    def text(trial: TrialRecord) -> str:
        return shown(trial.params[path]) if path in trial.params else ""

    right = all(isinstance(value(trial), int | float | None) for trial in trials)
    return Column(key=path, name=name, title=path, right=right, text=text, value=value)


def shown(value: Any) -> str:
    """Short text of a parameter's value; lists have no brackets."""
    return ", ".join(map(short, value)) if isinstance(value, list) else short(value)


def _column(
    key: str, name: str, value: Callable[[TrialRecord], Any], text: Callable[[TrialRecord], str] | None = None
) -> Column:
    return Column(
        key=key, name=name, title=name, right=True, value=value, text=text or (lambda trial: str(value(trial)))
    )
