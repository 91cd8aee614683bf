"""A recorded sweep as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from markupsafe import Markup

from sweeps.report.formatting import duration
from sweeps.report.terminal_tables import by_rank, trial_cells
from sweeps.report.watch import Load, next_record
from sweeps.texts.html_table import html_table, paragraphs
from sweeps.texts.wording import counted, counted_states
from sweeps.tracking.mlflow_texts import describe, describe_no_best, parameter_names
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.tracking.values import short

Show = Callable[[dict[str, str]], object]
"""Shows text as ``text/html`` and as ``text/plain``."""
MOST_TRIALS = 20
MOST_ERRORS = 3


def sweep_html(record: SweepRecord) -> str:
    """Return a sweep's state, its best trial and its trials, the best first."""
    record = record.settled()
    ranked = by_rank(record)
    shown = ranked[:MOST_TRIALS]
    table = trials_html(
        ["trial", "state", *record.metrics, "step", "took"],
        [[str(cell) for cell in trial_cells(record, trial)] for trial in shown],
        [trial.params for trial in shown],
        best={trial.trial for trial in record.front},
    )
    more = f"and {len(ranked) - len(shown)} more" if len(ranked) > len(shown) else ""
    failed = [trial for trial in record.trials if trial.error][:MOST_ERRORS]
    errors = [f"trial {trial.trial} failed: {trial.error}" for trial in failed]
    return str(paragraphs(_headline(record), _best(record)) + table + paragraphs(more, *errors))


def watch_in_notebook(load: Load, show: Show) -> SweepRecord:
    """Show a sweep until it has ended or the user presses the stop button; ``show`` replaces what is shown. Return the
    latest record."""
    record = load()
    with suppress(KeyboardInterrupt):
        while True:
            show({"text/html": sweep_html(record), "text/plain": sweep_text(record)})
            if record.status != "running":
                break
            record, _ = next_record(record, load)
    return record


def trials_html(
    columns: Sequence[str], rows: Sequence[Sequence[str]], params: Sequence[Mapping[str, Any]], best: set[str]
) -> Markup:
    """Return a table of trials with a column for each parameter. The first columns, whose cells are in ``rows``, begin
    with the trial's id; the rows of the best trials are bold."""
    names = parameter_names(params)
    lines: list[list[object]] = []
    for row, values in zip(rows, params, strict=True):
        cells: list[object] = [*row, *(short(values[path]) if path in values else "" for path in names)]
        lines.append([Markup("<b>{}</b>").format(cell) for cell in cells] if row[0] in best else cells)
    return html_table([*columns, *names.values()], lines)


def sweep_text(record: SweepRecord) -> str:
    """Return one line about a sweep, for a viewer that cannot show HTML."""
    record = record.settled()
    best = "" if record.best is None else f"; best trial {_value_of(record, record.best)}"
    return f"<{record.sweep}: {record.status}, {counted_states(record.counts) or 'no trials'}{best}>"


def _headline(record: SweepRecord) -> Markup:
    text = f"{record.status}: {counted_states(record.counts) or 'no trials'}; {duration(record.time.wall_s)}"
    return Markup("<b>{}</b> {}").format(record.sweep, text)


def _best(record: SweepRecord) -> str:
    if record.best is None:
        return describe_no_best(record)
    if len(record.front) > 1:
        return f"Pareto front of {counted(len(record.front), 'trial')}"
    return f"best: trial {_value_of(record, record.best)}; {describe(record.best.params)}"


def _value_of(record: SweepRecord, trial: TrialRecord) -> str:
    """Return the id and values of a trial: ``0003, eval/loss 0.123``."""
    of_each = zip(record.metrics, trial.all_values(), strict=False)
    return ", ".join([trial.trial, *(f"{metric} {value:.5g}" for metric, value in of_each)])
