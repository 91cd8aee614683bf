"""The output of a notebook's cell while a sweep runs, without a kernel; tests/test_notebooks.py has one."""

from __future__ import annotations

import base64
import re
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from recording import record_small_sweep
from test_terminal_view import sweep_state

from sweeps.driver import notebook_view as notebook
from sweeps.driver.notebook_view import NotebookView, is_notebook
from sweeps.driver.trial_status import MOST_POINTS, TrialStatus
from sweeps.report.live_curves import curves_image
from sweeps.report.notebook_html import watch_in_notebook
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import SweepRecord


class Handle:
    """Keeps what IPython would show."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def update(self, content: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(content)


@pytest.fixture
def handle(monkeypatch: pytest.MonkeyPatch) -> Handle:
    handle = Handle()
    display = SimpleNamespace(display=lambda *_, **__: handle)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(notebook, "DRAW_EVERY_S", 0.0)
    return handle


def svg(html: str) -> str:
    found = re.search(r"data:image/svg\+xml;base64,([^\"]+)", html)
    assert found
    return base64.b64decode(found[1]).decode()


def test_the_output_has_the_steps_of_the_start_then_trials_curves_and_the_last_events(handle: Handle) -> None:
    state = sweep_state()
    state.trials["0001"].curve = [(20.0, 2.0), (80.0, 1.5)]
    with NotebookView() as view:
        view.starting("starting <Ray>")
        assert "starting &lt;Ray&gt;" in handle.shown[-1]["text/html"]
        for number in range(6):
            view.event(state, f"event {number}")
        shown = handle.shown[-1]
    assert "lora-1  2/16 trials  1 finished" in shown["text/html"]
    assert "<td><b>0001</b></td>" in shown["text/html"]
    assert "<th>some_long_name_8</th>" in shown["text/html"]
    assert "event 1" not in shown["text/html"]
    assert "event 2" in shown["text/html"]
    assert "<polyline" in svg(shown["text/html"])
    assert "trial 0001, lr=0.00213" in shown["text/plain"]  # for viewers without HTML
    assert "\x1b" not in shown["text/plain"]
    for form in ("text/html", "text/plain"):  # the end
        assert "lora-1: 1 finished, 1 pruned, 2 running in " in handle.shown[-1][form]
    assert not re.search("<script|<style", shown["text/html"])  # GitHub and others remove them
    # Jupyter would show "from $5 to $6" as a formula; these are the classes that pandas writes, too.
    assert not re.search('<(table|p)(?! class="tex2jax_ignore mathjax_ignore")[^>]*>(?!<img)', shown["text/html"])


def test_the_output_is_drawn_at_most_once_a_second(handle: Handle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "DRAW_EVERY_S", 60.0)
    with NotebookView() as view:
        for _ in range(100):
            view.changed(sweep_state())
        assert len(handle.shown) <= 1
    assert handle.shown


def test_only_a_kernel_is_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shell: Any = None
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert not is_notebook()
    shell = SimpleNamespace()  # IPython on a terminal
    assert not is_notebook()
    shell = SimpleNamespace(kernel=object())
    assert is_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not is_notebook()


def test_a_curve_keeps_its_ends_and_stays_short() -> None:
    trial = TrialStatus("0000", {})
    for step in range(1, 10_000):
        trial.add_point(step, 1 / step)
    assert len(trial.curve) <= MOST_POINTS + 1
    assert (trial.curve[0][0], trial.curve[-1][0]) == (1, 9999)
    trial.add_point(500, 0.5)  # continues from another trial's earlier state
    assert trial.curve[-1] == (500, 0.5)
    assert all(before[0] < after[0] for before, after in zip(trial.curve, trial.curve[1:], strict=False))


def test_the_image_of_curves_bears_any_values() -> None:
    assert curves_image({}, {}, None, "loss", "min") == ""
    assert curves_image({"a": []}, {}, None, "loss", "min") == ""
    for curves in ({"a": [(0, 0.0)]}, {"a": [(5, 1.0), (6, 1.0)]}, {"a": [(1, -1e300), (2, 1e300)]}):
        drawn = svg(str(curves_image(curves, {"a": "finished"}, "a", "a<b", "max")))
        assert "a&lt;b" in drawn
        assert "nan" not in drawn


def test_a_recorded_sweep_is_watched_until_it_has_ended(
    uri: str, monkeypatch: pytest.MonkeyPatch, handle: Handle
) -> None:
    record_small_sweep(uri)
    ended = load_sweep(uri, "digits-1")
    read = iter([replace(ended, status="running"), replace(ended, status="running"), ended])
    monkeypatch.setattr("sweeps.report.watch.INTERVAL_S", 0.0)
    watched = watch_in_notebook(lambda: next(read), lambda content: handle.update(content, raw=True))
    assert watched is ended
    assert ["running" in each["text/html"] for each in handle.shown] == [True, True, False]
    assert "trial 2 failed: ValueError: no" in handle.shown[-1]["text/html"]
    assert handle.shown[-1]["text/plain"].startswith("<digits-1: finished, ")


def test_the_stop_button_leaves_a_watched_sweep(uri: str, handle: Handle) -> None:
    record_small_sweep(uri)
    running = replace(load_sweep(uri, "digits-1"), status="running")
    calls: list[int] = []

    def read() -> SweepRecord:
        calls.append(1)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return running

    assert watch_in_notebook(read, lambda content: handle.update(content, raw=True)) is running
    assert len(handle.shown) == 1
