"""Live table of a running sweep from its MLflow record, on any machine that reaches the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from sweeps.errors import TrackingUnreachable
from sweeps.report.forecast_text import forecast_lines
from sweeps.report.formatting import STATE_STYLES, duration
from sweeps.report.parameter_columns import parameter_table
from sweeps.report.plain_console import print_lines
from sweeps.report.terminal_tables import by_rank, trial_cells
from sweeps.texts.wording import counted
from sweeps.tracking.mlflow_texts import describe
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.tracking.stage_results import describe_stages
from sweeps.tracking.values import short

INTERVAL_S = 2.0
SHARE_OF_TIME = 0.2
"""Maximum share of time spent on reading from MLflow; reading thousands of trials takes a server seconds."""
OTHER_LINES = 11
"""Number of lines on the screen that do not show trials."""

Load = Callable[[], SweepRecord]


def watch(load: Load, console: Console) -> SweepRecord:
    """Show a sweep until it has ended or the user presses Ctrl-C: on a terminal a live table, anywhere else a line for
    each change. Return the latest record."""
    record = load()
    if not console.is_terminal:
        return _in_lines(record, load, console)
    screen = Live(_screen(record, console), console=console, auto_refresh=False, transient=True)
    with screen, suppress(KeyboardInterrupt):
        while record.status == "running":
            record, trouble = next_record(record, load)
            screen.update(_screen(record, console, trouble), refresh=True)
    return record


def _in_lines(record: SweepRecord, load: Load, console: Console) -> SweepRecord:
    states: dict[str, str] = {}
    with suppress(KeyboardInterrupt):
        while True:
            print_lines(console, *changes(record, states))
            if record.status != "running":
                break
            record, _ = next_record(record, load)
    return record


def changes(record: SweepRecord, states: dict[str, str]) -> Iterator[str]:
    """A line for each trial whose state differs from ``states``, which is updated."""
    for trial in record.settled().all_trials:
        if states.get(trial.trial) != trial.state:
            states[trial.trial] = trial.state
            value = "" if trial.value is None else f", {record.metric} {short(trial.value)}"
            if value and trial.best_step not in (None, trial.steps):
                value += f" at step {trial.best_step}"
            yield f"{time.strftime('%H:%M:%S')} trial {trial.trial} {trial.state} at step {trial.steps}{value}"


def next_record(record: SweepRecord, load: Load) -> tuple[SweepRecord, str]:
    """Return the record after the next interval; if MLflow does not answer, the old one and the reason."""
    started = time.monotonic()
    trouble = ""
    try:
        record = load()
    except TrackingUnreachable as error:
        trouble = f"{error}; trying again"
    took = time.monotonic() - started
    time.sleep(max(INTERVAL_S - took, took * (1 / SHARE_OF_TIME - 1), 0.1))
    return record, trouble


def _headline(record: SweepRecord) -> Text:
    headline = Text(f"{record.sweep} ", "bold", no_wrap=True, overflow="ellipsis")
    headline.append(f"{record.status}  ", "default")
    ended = sum(count for state, count in record.counts.items() if state != "running")
    planned = record.planned if record.planned and record.planned >= ended else None
    headline.append(counted(ended, "trial") if planned is None else f"{ended}/{counted(planned, 'trial')}", "default")
    headline.append("  ")
    for state, count in record.counts.items():
        if count:
            headline.append(f"{count} {state}  ", STATE_STYLES[state])
    return headline.append(f"{duration(record.time.wall_s)} gone", "default")


def _screen(record: SweepRecord, console: Console, trouble: str = "") -> RenderableType:
    lines: list[RenderableType] = [_headline(record)]
    if (best := record.best) is not None and best.value is not None:
        text = f"best {record.metric} {best.value:.5g}: trial {best.trial}, {describe(best.params)}"
        lines.append(Text(text, "bold green", no_wrap=True, overflow="ellipsis"))
    confirmed = [] if record.confirmation is None else [record.confirmation.describe()]
    told = [*describe_stages(record.stages), *confirmed, *forecast_lines(record)]
    lines += [Text(line, no_wrap=True, overflow="ellipsis") for line in told]
    shown = _shown_trials(record, max(3, console.height - OTHER_LINES))
    columns = ["trial", "state", *record.metrics, "step", "took"]
    cells = [trial_cells(record, trial) for trial in shown]
    table, hidden = parameter_table(columns, cells, [trial.params for trial in shown], console.width)
    lines += [table] if hidden is None else [table, hidden]
    if len(record.trials) > len(shown):
        lines.append(Text(f"and {len(record.trials) - len(shown)} more", "dim"))
    lines.append(Text(trouble or "Ctrl-C ends this display; the sweep continues", "red" if trouble else "dim"))
    return Group(*lines)


def _shown_trials(record: SweepRecord, room: int) -> list[TrialRecord]:
    """Running trials followed by the best others, as many as fit on the screen, in the order of ``show``."""
    ranked = by_rank(record)
    running = [trial for trial in ranked if trial.state == "running"]
    others = [trial for trial in ranked if trial.state != "running"]
    chosen = {trial.trial for trial in [*running, *others][:room]}
    return [trial for trial in ranked if trial.trial in chosen]
