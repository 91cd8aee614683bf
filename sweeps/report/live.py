"""A running sweep: a live table on a terminal, one plain line per event elsewhere. Both on stderr."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sweeps.tracking.summary import describe

if TYPE_CHECKING:
    from types import TracebackType

    from sweeps.monitor import Monitor
    from sweeps.trial_status import TrialStatus

MAX_ROWS = 12
MAX_FRONT = 4
STATE_STYLES = {"finished": "green", "pruned": "yellow", "failed": "red", "running": "cyan", "stopped": "magenta"}


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

    def event(self, monitor: Monitor, text: str) -> None:
        done = f"{monitor.ended_count()}/{monitor.num_trials}"
        line = f"{time.strftime('%H:%M:%S')} [{done}] {text}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class LiveView:
    """The trials that run, the last that ended, and the best."""

    def __init__(self, console: Console):
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._drawn = 0.0
        self._news: list[str] = []

    def __enter__(self) -> LiveView:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def changed(self, monitor: Monitor) -> None:
        if time.monotonic() - self._drawn >= 0.25:  # a person reads no faster
            self._drawn = time.monotonic()
            self._live.update(progress_table(monitor, self._news), refresh=True)

    def event(self, monitor: Monitor, text: str) -> None:
        self._news = [*self._news[-2:], text]
        self.changed(monitor)


def progress_table(monitor: Monitor, news: list[str]) -> Group:
    """The whole display, as rich draws it."""
    counts = monitor.counts()
    headline = Text()
    headline.append(f"{monitor.sweep}  ", style="bold")
    headline.append(f"{monitor.ended_count()}/{monitor.num_trials} trials  ")
    for state, count in counts.items():
        if count:
            headline.append(f"{count} {state}  ", style=STATE_STYLES[state])
    headline.append(f"{duration(monitor.time()['wall_s'])} gone")
    if (remaining := monitor.remaining_s()) is not None:
        headline.append(f", about {duration(remaining)} left")

    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    for name, justify in (("trial", "left"), ("state", "left"), ("step", "right"), (monitor.metric, "right")):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("speed", justify="right", no_wrap=True)
    table.add_column("parameters", overflow="ellipsis", no_wrap=True, ratio=1)  # what the others leave
    for status in _rows(monitor):
        table.add_row(*_cells(status))

    front = monitor.front()
    lines: list[Text | Table] = [headline, table]
    for each in front[:MAX_FRONT]:
        assert each.values is not None
        summary = f"best {monitor.describe_values(each.values)}: trial {each.trial}, {describe(each.parameters)}"
        lines.append(Text(summary, "bold"))
    if len(front) > MAX_FRONT:
        lines.append(Text(f"and {len(front) - MAX_FRONT} more, of which none is better in all", "dim"))
    lines.extend(Text(each, style="dim", no_wrap=True, overflow="ellipsis") for each in news)
    return Group(*lines)


def _rows(monitor: Monitor) -> list[TrialStatus]:
    """All running trials, then the latest that ended, within what a screen holds."""
    trials = list(monitor.trials.values())
    running = [each for each in trials if each.state == "running"]
    ended = [each for each in reversed(trials) if each.state != "running"]
    return [*running, *ended][:MAX_ROWS]


def _cells(status: TrialStatus) -> list[str | Text]:
    step = f"{status.step}/{status.last_step}" if status.last_step else str(status.step)
    shown = status.latest if status.state == "running" else status.value
    return [
        status.trial,
        Text(status.state, style=STATE_STYLES.get(status.state, "")),
        step,
        "" if shown is None else f"{shown:.4g}",
        status.speed if status.state == "running" else "",
        describe(status.parameters),
    ]


def duration(seconds: float) -> str:
    """``75`` -> ``1m 15s``."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m {seconds:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02}m"
