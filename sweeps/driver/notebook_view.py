"""View of a running sweep in a notebook: one output of the cell, which is replaced as the sweep continues.

The output is HTML without scripts, so that the saved notebook shows its last state, even on GitHub and after nbconvert.
"""

from __future__ import annotations

import io
import sys
import time
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from rich.text import Text

from sweeps.driver.terminal_view import progress_table, progress_text, shown_trials, status_cells
from sweeps.report.formatting import duration
from sweeps.report.live_curves import curves_image
from sweeps.report.notebook_html import trials_html
from sweeps.report.plain_console import plain_console
from sweeps.texts.html_table import paragraphs
from sweeps.texts.wording import counted_states

if TYPE_CHECKING:
    from sweeps.driver.sweep_state import SweepState

DRAW_EVERY_S = 1.0
"""Minimum seconds between two updates of the output: each is a message to every browser that shows the notebook."""
MOST_EVENTS = 4
TEXT_WIDTH = 120
"""Characters in a line of the text for viewers that show no HTML."""


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook; does not import IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")  # IPython on a terminal has none


def new_output() -> Any:
    """Return an empty output of the cell, with the method ``update``."""
    from IPython.display import display

    return display({"text/plain": "", "text/html": ""}, raw=True, display_id=True)  # type: ignore[no-untyped-call]


class NotebookView:
    """Output of a notebook's cell: progress, trials, learning curves and the last events of a sweep."""

    def __init__(self) -> None:
        self._events: list[str] = []
        self._drawn_at = 0.0
        self._has_ended = False
        self._state: SweepState | None = None
        self._handle: Any = None

    def __enter__(self) -> NotebookView:
        # The kernel finds the cell of an output in the context; updates come from another thread.
        self._context = copy_context()
        self._handle = new_output()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended = True
        self._draw()

    def starting(self, text: str) -> None:
        """Show a step of the start."""
        self._add_event(text)
        self._draw()

    def changed(self, state: SweepState) -> None:
        """Draw the current state, unless that was done a moment ago."""
        self._state = state
        if time.monotonic() - self._drawn_at >= DRAW_EVERY_S:
            self._draw()

    def event(self, state: SweepState, text: str) -> None:
        """Add an event to the shown ones."""
        self._add_event(text)
        self.changed(state)

    def _add_event(self, text: str) -> None:
        self._events = [*self._events[1 - MOST_EVENTS :], f"{time.strftime('%H:%M:%S')} {text}"]

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        content = {"text/plain": self._text(), "text/html": self._html()}
        self._context.copy().run(self._handle.update, content, raw=True)

    def _html(self) -> str:
        events = Markup("<br>").join(self._events)
        if self._state is None:
            return str(paragraphs(events))
        with self._state.lock:
            table = paragraphs(str(self._headline(self._state))) + _trials(self._state)
            return str(table + _curves(self._state) + paragraphs(events))

    def _headline(self, state: SweepState) -> Text:
        if not self._has_ended:
            return progress_text(state)
        how = f", {state.shutdown.status}" if state.shutdown.status is not None else ""
        return Text(f"{state.sweep}: {counted_states(state.counts()) or 'no trials'} in {duration(state.wall_s)}{how}")

    def _text(self) -> str:
        if self._state is None:
            return "\n".join(self._events)
        console = plain_console(file=io.StringIO(), width=TEXT_WIDTH, force_terminal=False)
        with self._state.lock, console.capture() as printed:
            console.print(progress_table(self._state, self._headline(self._state), self._events, TEXT_WIDTH))
        return printed.get()


def _trials(state: SweepState) -> Markup:
    trials = shown_trials(state)
    return trials_html(
        ["trial", "state", *state.objectives.metrics, "step", "speed"],
        [[str(cell) for cell in status_cells(state, trial)] for trial in trials],
        [trial.parameters for trial in trials],
        best={trial.trial for trial in state.front()},
    )


def _curves(state: SweepState) -> Markup:
    front = state.front()
    return curves_image(
        {trial.trial: trial.curve for trial in state.all_trials if trial.curve},
        {trial.trial: trial.state for trial in state.all_trials},
        front[0].trial if front else None,
        state.objectives.metrics[0],
        state.objectives.modes[0],
    )
