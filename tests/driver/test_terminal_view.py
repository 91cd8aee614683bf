"""The live table: what a person sees while a sweep runs."""

from __future__ import annotations

import io
import os
import pty
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from records import sweep_record
from rich.console import Console

from sweeps.cli.exit_status import exit_status, exits_with
from sweeps.cli.output import run_and_show, show_outcome
from sweeps.config.search import Stop
from sweeps.driver.early_end import Shutdown
from sweeps.driver.startup import announce_start
from sweeps.driver.sweep_state import SweepState
from sweeps.driver.terminal_view import LiveView, PlainView, progress_table, progress_text
from sweeps.driver.trial_status import TrialStatus
from sweeps.plan.plan import make_plan
from sweeps.report.formatting import duration
from sweeps.report.terminal_echo import without_control_echo
from sweeps.tracking.forecast_record import Forecast, Interval
from sweeps.tracking.journal import JOURNAL_FILE


def sweep_state(*metrics: str, **changes: Any) -> SweepState:
    metrics = metrics or ("eval/loss",)
    modes = ("min",) * len(metrics)
    search = SimpleNamespace(metrics=metrics, modes=modes, limits={}, value=None, stop=Stop(), num_trials=16)
    search.judges_trials = False
    composition: Any = SimpleNamespace(config=SimpleNamespace(search=search))
    nobody: Any = None
    made = SweepState("lora-1", composition, changes.pop("view", nobody), 1, Shutdown(None))
    values = {0: (1.5, 3.0), 1: (1.6, 2.0), 2: (1.7, 4.0)}
    few = len(metrics)
    params = {"train.lr": 0.00213, "model.lora.r": 8, **{f"model.some_long_name_{index}": index for index in range(9)}}
    made.trials = {
        "0000": TrialStatus("0000", params, "pruned", 1, step=12, last_step=80, values=values[2][:few]),
        "0001": TrialStatus("0001", params, "finished", 1, step=80, last_step=80, values=values[0][:few]),
        "0002": TrialStatus(
            "0002",
            params,
            "running",
            1,
            step=24,
            last_step=80,
            values=values[1][:few],
            training_since=1.0,
            speed="26,000 tokens/s",
        ),
        "0003": TrialStatus("0003", params, "running", 1, last_step=80, assigned=time.time() - 7),
    }
    return made


def drawn(made: SweepState, width: int, news: tuple[str, ...] = ()) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(progress_table(made, progress_text(made), [*news], width))
    lines: list[str] = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert all(len(line.rstrip()) <= width for line in lines)
    return [line.rstrip() for line in lines]


@pytest.mark.parametrize("width", [80, 140])
def test_the_live_table_has_parameters_as_columns_and_the_best_first(width: int) -> None:
    headline, header, *rows = drawn(sweep_state(), width, ("trial 0003 started",))
    assert headline.startswith("lora-1  2/16 trials  1 finished  1 pruned  2 running")
    assert header.split()[:7] == ["trial", "state", "eval/loss", "step", "speed", "lr", "r"]
    assert [row.split()[0] for row in rows[:4]] == ["0001", "0002", "0000", "0003"]
    assert rows[1].split()[:8] == ["0002", "running", "1.6", "24/80", "26,000", "tokens/s", "0.00213", "8"]
    assert rows[3].split()[:4] == ["0003", "starting", "for", "7s"]
    assert "no room for" in rows[4]
    assert rows[5].startswith("best eval/loss 1.5: trial 0001, lr=0.00213 r=8")
    assert rows[6] == "trial 0003 started"
    assert ("some_long_name_2" in header) is (width == 140)


def test_several_objectives_have_a_column_each_and_name_the_pareto_front() -> None:
    out = "\n".join(drawn(sweep_state("eval/loss", "size"), 140))
    assert "on the Pareto front: eval/loss 1.5, size 3: trial 0001" in out
    assert "on the Pareto front: eval/loss 1.6, size 2: trial 0002" in out
    assert out.splitlines()[1].split()[2:4] == ["eval/loss", "size"]


def test_no_time_is_left_when_all_trials_have_ended() -> None:
    made = sweep_state()
    made.num_trials = 2
    made.forecast = Forecast(at=time.time(), wall_s=Interval(60, 90, 150))
    headline = drawn(made, 140)[0]
    assert "left" not in headline
    assert "writing the last results to MLflow" in headline
    made.num_trials = 16
    assert "about" in drawn(made, 140)[0]


def test_what_is_being_started_is_said_at_once_with_its_time() -> None:
    plain = Console(file=io.StringIO(), width=200)
    with PlainView(plain) as view:
        view.starting("first: starting Ray and connecting to MLflow")
    assert plain.file.getvalue().split(" ", 1)[1] == "first: starting Ray and connecting to MLflow\n"  # type: ignore[attr-defined]
    terminal = Console(file=io.StringIO(), width=80, force_terminal=True)
    with LiveView(terminal) as live:
        live.starting("first: 16 trials")
        live.starting("first: starting Ray and connecting to MLflow")
    out = terminal.file.getvalue()  # type: ignore[attr-defined]
    assert "first: 16 trials" in out
    assert "connecting to MLflow 0s" in out


def test_notes_on_the_config_are_shown_at_the_start(working_folder: Path) -> None:
    plan = make_plan(["conf=digits", "search.mode=min", "search.constraints=['train.lr < 0.01']"], [], "noted", "")
    shown = Console(file=io.StringIO(), width=80)
    announce_start(plan, PlainView(shown))
    text = shown.file.getvalue()  # type: ignore[attr-defined]
    assert "note: search.mode=min looks for the lowest eval/accuracy, its worst value" in text
    assert "note: search.constraints allow about" in text
    assert text.index("note:") < text.index("noted: starting Ray")


def test_a_sweep_on_a_running_cluster_does_not_say_that_it_starts_ray(working_folder: Path) -> None:
    shown = Console(file=io.StringIO(), width=200)
    announce_start(make_plan(["conf=digits", "cluster=auto"], [], "joins", ""), PlainView(shown))
    text = shown.file.getvalue()  # type: ignore[attr-defined]
    assert "joins: joining the Ray cluster (cluster.address=auto) and connecting to MLflow" in text
    assert "starting Ray" not in text


ECHO = """
import sys, termios
from sweeps.report.terminal_echo import without_control_echo
echoes = lambda: bool(termios.tcgetattr(0)[3] & termios.ECHOCTL)
before = echoes()
with without_control_echo():
    print(before, echoes(), end=" ")
print(echoes())
"""


def test_ctrl_c_is_not_echoed_into_the_live_table() -> None:
    seen: list[bytes] = []

    def read(terminal: int) -> bytes:
        seen.append(os.read(terminal, 1000))
        return seen[-1]

    assert pty.spawn([sys.executable, "-c", ECHO], read) == 0  # in a session of its own, whose terminal it has
    assert b"True False True" in b"".join(seen)
    with without_control_echo():  # stdin is no terminal
        pass


@pytest.mark.parametrize(("begun", "words"), [(True, "resume s"), (False, "nothing was recorded")])
def test_ctrl_c_before_the_search_says_how_to_go_on(
    begun: bool, words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if begun:
        (tmp_path / JOURNAL_FILE).touch()

    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    exits_with(0)
    plan: Any = SimpleNamespace(name="s", folder=tmp_path)
    run_and_show(interrupted, plan, as_json=True)
    assert exit_status() == 130
    assert words in capfd.readouterr().err


@pytest.mark.parametrize("as_json", [True, False])
def test_an_interrupted_sweep_says_how_to_go_on(as_json: bool, capfd: pytest.CaptureFixture[str]) -> None:
    record = sweep_record(status="interrupted", counts={"finished": 0})
    exits_with(0)
    show_outcome(record, as_json=as_json)
    assert exit_status() == 130
    out, err = capfd.readouterr()
    assert "python -m sweeps resume s" in (err if as_json else out)


def test_durations_are_short() -> None:
    assert [duration(seconds) for seconds in (0, 59, 75, 3_700)] == ["0s", "59s", "1m 15s", "1h 01m"]
