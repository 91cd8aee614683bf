"""Views of a running sweep on stderr: a live table on a terminal, one plain line per event elsewhere."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sweeps.report.forecast_text import describe_forecast, time_left
from sweeps.report.formatting import STATE_STYLES, duration
from sweeps.report.parameter_columns import parameter_table
from sweeps.report.terminal_echo import without_control_echo
from sweeps.report.unblocked_output import unblocked
from sweeps.texts.wording import counted
from sweeps.tracking.mlflow_texts import describe

if TYPE_CHECKING:
    from sweeps.driver.sweep_state import SweepState
    from sweeps.driver.trial_status import TrialStatus

MAX_ROWS = 12
MAX_FRONT = 4


def view_on(console: Console) -> PlainView | LiveView:
    """Return a live table for a terminal, and plain lines of events for any other output."""
    return LiveView(console) if console.is_terminal else PlainView(console)


class PlainView:
    """One line per event, for logs and pipes."""

    def __init__(self, console: Console):
        self._console = console
        self._opened = ExitStack()

    def __enter__(self) -> PlainView:
        self._opened.enter_context(unblocked(self._console))
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def changed(self, state: SweepState) -> None:
        pass

    def starting(self, text: str) -> None:
        self._console.print(f"{time.strftime('%H:%M:%S')} {text}", markup=False, highlight=False, soft_wrap=True)

    def event(self, state: SweepState, text: str) -> None:
        self.starting(f"[{state.progress}] {text}")


class LiveView:
    """Live table of the running trials and the best of the other trials, with the last events."""

    def __init__(self, console: Console):
        self._console = console
        self._live = Live(console=console, auto_refresh=True, refresh_per_second=2, transient=True)
        self._opened = ExitStack()
        self._drawn = 0.0
        self._events: list[str] = []
        self._started: list[str] = []
        """Steps of the start that were shown before the current one."""

    def __enter__(self) -> LiveView:
        self._opened.enter_context(unblocked(self._console))
        self._opened.enter_context(without_control_echo())
        self._opened.enter_context(self._live)
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def starting(self, text: str) -> None:
        before = [Text(each) for each in self._started]
        self._started.append(text)
        self._live.update(Group(*before, _Starting(text)), refresh=True)

    def changed(self, state: SweepState) -> None:
        if time.monotonic() - self._drawn >= 0.25:  # a person reads no faster
            self._drawn = time.monotonic()
            self._live.update(
                progress_table(state, progress_text(state), self._events, self._console.width), refresh=True
            )

    def event(self, state: SweepState, text: str) -> None:
        self._events = [*self._events[-2:], text]
        self.changed(state)


class _Starting:
    """Current step of the start, with its duration so far."""

    def __init__(self, text: str):
        self._text, self._since = text, time.monotonic()

    def __rich__(self) -> Text:
        return Text(f"{self._text} {duration(time.monotonic() - self._since)}", no_wrap=True, overflow="ellipsis")


def progress_table(state: SweepState, headline: Text, events: list[str], width: int) -> Group:
    """Draw the live table below its headline."""
    front = state.front()
    trials = shown_trials(state)
    columns = ["trial", "state", *state.objectives.metrics, "step", "speed"]
    cells = [status_cells(state, status) for status in trials]
    table, hidden = parameter_table(columns, cells, [status.parameters for status in trials], width)
    lines: list[Text | Table] = [headline, table]
    if len(state.trials) > len(trials):
        lines.append(Text(f"and {counted(len(state.trials) - len(trials), 'more trial')}", "dim"))
    if hidden is not None:
        lines.append(hidden)
    for each in front[:MAX_FRONT]:
        assert each.values is not None
        which = "best" if len(state.objectives.metrics) == 1 else "on the Pareto front:"
        summary = f"{which} {state.describe_values(each.values)}: trial {each.trial}, {describe(each.parameters)}"
        lines.append(Text(summary, "bold", no_wrap=True, overflow="ellipsis"))
    if len(front) > MAX_FRONT:
        lines.append(Text(f"and {len(front) - MAX_FRONT} more on the Pareto front", "dim"))
    if state.forecast is not None and state.shutdown.status is None and state.ended_count() < state.num_trials:
        forecast = state.forecast.after(time.time() - state.forecast.at)
        lines.extend(Text(each, no_wrap=True, overflow="ellipsis") for each in describe_forecast(forecast))
    lines.extend(Text(each, style="dim", no_wrap=True, overflow="ellipsis") for each in events)
    return Group(*lines)


def progress_text(state: SweepState) -> Text:
    """Return one line with the number of trials in each state, the time so far, and the time left."""
    headline = Text(no_wrap=True, overflow="ellipsis")
    headline.append(f"{state.sweep}  ", style="bold")
    ended = state.ended_count()
    headline.append(f"{state.progress} trial{'s'[: state.planned_now != 1]}  ")
    for name, count in state.counts(state.stage).items():
        if count:
            headline.append(f"{count} {name}  ", style=STATE_STYLES[name])
    headline.append(f"{duration(state.wall_s)} gone")
    if to_come := state.unfinished_repeats:
        done = sum(each.has_ended for each in state.repeats)
        headline.append(f", {done} of at least {counted(done + to_come, 'repeat')} of the best done")
    elif ended >= state.num_trials:
        headline.append(", writing the last results to MLflow")
    elif (found := state.forecast) is not None and found.wall_s is not None and state.shutdown.status is None:
        headline.append(f", {time_left(found.after(time.time() - found.at))}")
    return headline


def shown_trials(state: SweepState) -> list[TrialStatus]:
    """Return the running trials of the current stage or search and the best of its other trials, as many as fit on a
    screen; best first, as in ``show``."""
    shown = [*state.trials_of(state.stage), *state.repeats]
    front = {status.trial for status in state.front()}

    def rank(status: TrialStatus) -> tuple[bool, bool, float, str]:
        return status.value is None, status.trial not in front, state.objectives.loss(status.value or 0.0), status.trial

    ranked = sorted((each for each in shown if each.state != "waiting"), key=rank)
    running = [each for each in ranked if each.state == "running"]
    others = [each for each in ranked if each.state != "running"]
    chosen = {each.trial for each in [*running, *others][:MAX_ROWS]}
    return [each for each in ranked if each.trial in chosen]


def status_cells(state: SweepState, status: TrialStatus) -> list[str | Text]:
    """Cells of a trial: id, state, a value for each objective, steps and speed."""
    speed = status.speed if status.state == "running" else ""
    if status.is_starting:
        since = status.assigned or time.time()
        return [
            status.trial,
            Text("starting", style="dim cyan"),
            *_values(state, status),
            "",
            f"for {duration(max(0.0, time.time() - since))}",
        ]
    step = f"{status.step}/{status.last_step}" if status.last_step else str(status.step)
    name = Text(status.state, style=STATE_STYLES.get(status.state, ""))
    return [status.trial, name, *_values(state, status), step, speed]


def _values(state: SweepState, status: TrialStatus) -> list[str]:
    return [f"{value:.4g}" for value in status.values or ()] or [""] * len(state.objectives.metrics)
