"""A running sweep: a live table on a terminal, one plain line per event elsewhere. Both on stderr."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sweeps.report.formatting import STATE_STYLES, duration
from sweeps.report.parameter_columns import Column, parameter_table
from sweeps.report.terminal_echo import without_control_echo
from sweeps.tracking.summary import describe

if TYPE_CHECKING:
    from types import TracebackType

    from sweeps.driver.state import Monitor
    from sweeps.driver.trial_status import TrialStatus

MAX_ROWS = 12
MAX_FRONT = 4


class PlainView:
    """One line per event, for logs and pipes."""

    def __init__(self, console: Console):
        self._console = console

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def changed(self, monitor: Monitor) -> None:
        pass

    def starting(self, text: str) -> None:
        self._console.print(f"{time.strftime('%H:%M:%S')} {text}", markup=False, highlight=False, soft_wrap=True)

    def event(self, monitor: Monitor, text: str) -> None:
        done = f"{monitor.ended_count()}/{monitor.num_trials}"
        line = f"{time.strftime('%H:%M:%S')} [{done}] {text}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class LiveView:
    """The trials that run, the best of the others, and the last lines about them."""

    def __init__(self, console: Console):
        self._console = console
        self._live = Live(console=console, auto_refresh=True, refresh_per_second=2, transient=True)
        self._opened = ExitStack()
        self._drawn = 0.0
        self._news: list[str] = []
        self._said_before: list[str] = []
        """Lines that were shown before the sweep began."""

    def __enter__(self) -> LiveView:
        self._opened.enter_context(without_control_echo())
        self._opened.enter_context(self._live)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.__exit__(kind, error, trace)

    def starting(self, text: str) -> None:
        before = [Text(each, no_wrap=True, overflow="ellipsis") for each in self._said_before]
        self._said_before.append(text)
        self._live.update(Group(*before, _Starting(text)), refresh=True)

    def changed(self, monitor: Monitor) -> None:
        if time.monotonic() - self._drawn >= 0.25:  # a person reads no faster
            self._drawn = time.monotonic()
            self._live.update(progress_table(monitor, self._news, self._console.width), refresh=True)

    def event(self, monitor: Monitor, text: str) -> None:
        self._news = [*self._news[-2:], text]
        self.changed(monitor)


class _Starting:
    """The step that is being started, with its time so far."""

    def __init__(self, text: str):
        self._text, self._since = text, time.monotonic()

    def __rich__(self) -> Text:
        return Text(f"{self._text} {duration(time.monotonic() - self._since)}", no_wrap=True, overflow="ellipsis")


def progress_table(monitor: Monitor, news: list[str], width: int) -> Group:
    """The whole display, as rich draws it.

    Args:
        monitor: The sweep.
        news: The last lines about it.
        width: Of the terminal, in cells.
    """
    front = monitor.front()
    trials = _rows(monitor)
    columns = [
        Column("trial"),
        Column("state"),
        *(Column(metric, right=True) for metric in monitor.objectives.metrics),
        Column("step", right=True),
        Column("speed", right=True),
    ]
    cells = [_cells(monitor, status) for status in trials]
    table, hidden = parameter_table(columns, cells, [status.parameters for status in trials], width)
    lines: list[Text | Table] = [_headline(monitor), table]
    if len(monitor.trials) > len(trials):
        lines.append(Text(f"and {len(monitor.trials) - len(trials)} more trials", "dim"))
    if hidden is not None:
        lines.append(hidden)
    for each in front[:MAX_FRONT]:
        assert each.values is not None
        which = "best" if len(monitor.objectives.metrics) == 1 else "on the Pareto front:"
        summary = f"{which} {monitor.describe_values(each.values)}: trial {each.trial}, {describe(each.parameters)}"
        lines.append(Text(summary, "bold", no_wrap=True, overflow="ellipsis"))
    if len(front) > MAX_FRONT:
        lines.append(Text(f"and {len(front) - MAX_FRONT} more on the Pareto front", "dim"))
    lines.extend(Text(each, style="dim", no_wrap=True, overflow="ellipsis") for each in news)
    return Group(*lines)


def _headline(monitor: Monitor) -> Text:
    headline = Text(no_wrap=True, overflow="ellipsis")
    headline.append(f"{monitor.sweep}  ", style="bold")
    ended = monitor.ended_count()
    headline.append(f"{ended}/{monitor.num_trials} trials  ")
    for state, count in monitor.counts().items():
        if count:
            headline.append(f"{count} {state}  ", style=STATE_STYLES[state])
    headline.append(f"{duration(monitor.time()['wall_s'])} gone")
    remaining = monitor.remaining_s()
    if ended >= monitor.num_trials:
        headline.append(", writing the last results to MLflow")
    elif remaining is not None and not monitor.stopping:
        headline.append(f", about {duration(remaining)} left")
    return headline


def _rows(monitor: Monitor) -> list[TrialStatus]:
    """All trials that run, and the best of the others, within what a screen holds; the best first, as ``show`` has
    them."""
    front = {status.trial for status in monitor.front()}
    sign = 1 if monitor.objectives.modes[0] == "min" else -1

    def rank(status: TrialStatus) -> tuple[bool, bool, float, str]:
        return status.value is None, status.trial not in front, sign * (status.value or 0.0), status.trial

    ranked = sorted((each for each in monitor.trials.values() if each.state != "waiting"), key=rank)
    running = [each for each in ranked if each.state == "running"]
    others = [each for each in ranked if each.state != "running"]
    chosen = {each.trial for each in [*running, *others][:MAX_ROWS]}
    return [each for each in ranked if each.trial in chosen]


def _cells(monitor: Monitor, status: TrialStatus) -> list[str | Text]:
    state, speed = status.state, status.speed if status.state == "running" else ""
    if status.is_starting:
        since = status.assigned or time.time()
        return [
            status.trial,
            Text("starting", style="dim cyan"),
            *_values(monitor, status),
            "",
            f"for {duration(max(0.0, time.time() - since))}",
        ]
    step = f"{status.step}/{status.last_step}" if status.last_step else str(status.step)
    return [status.trial, Text(state, style=STATE_STYLES.get(state, "")), *_values(monitor, status), step, speed]


def _values(monitor: Monitor, status: TrialStatus) -> list[str]:
    return [f"{value:.4g}" for value in status.values or ()] or [""] * len(monitor.objectives.metrics)
