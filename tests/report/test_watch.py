"""show and list as tables, and a running sweep watched from outside, through MLflow alone."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from fork_server import run_forked
from recording import open_recorder
from rich.console import Console
from verbs import refusal
from waiting import wait_until

from sweeps.cli import run_command
from sweeps.config.objectives import Objectives
from sweeps.errors import TrackingUnreachable
from sweeps.report import watch as watching
from sweeps.report.watch import watch
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.recorder import Recorder

CONFIG = "search: {num_trials: 5}\n"


@pytest.fixture
def running(working_folder: Path) -> Recorder:
    """A sweep that runs, as its driver records it: one trial has ended, one trains."""
    uri = f"sqlite:///{working_folder}/mlflow.db"
    objectives = Objectives(("eval/loss",), ("min",))
    recorder = open_recorder(uri, "s", objectives, folder=working_folder, experiment="test", config=CONFIG, command="")
    for trial, rate in (("0000", 0.1), ("0001", 0.2)):
        recorder.trials.start(trial, {"train.lr": rate, "model.a_long_name_that_fills_the_line": "x" * 60}, CONFIG, 1)
        recorder.trials.log(trial, 10, {"eval/loss": rate})
    recorder.trials.end("0000", "finished", 10, 1)
    recorder.update({"finished": 1, "running": 1}, [("0000", (0.1,), {"train.lr": 0.1})], {"wall_s": 3.0})
    wait_until(lambda: load_sweep(uri, "s").counts["finished"] == 1)
    return recorder


def load(folder: Path) -> SweepRecord:
    return load_sweep(f"sqlite:///{folder}/mlflow.db", "s")


def test_a_running_sweep_is_drawn_until_it_ends(
    running: Recorder, working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "INTERVAL_S", 0.1)
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100, height=30)
    last: list[SweepRecord] = []
    answers = iter([TrackingUnreachable("MLflow is away")])

    def away_once() -> SweepRecord:
        if last and (trouble := next(answers, None)) is not None:
            raise trouble
        last.append(load(working_folder))
        return last[-1]

    wait_until(lambda: load(working_folder).planned == 5)
    thread = threading.Thread(target=lambda: last.append(watch(away_once, terminal)))
    thread.start()
    wait_until(lambda: "0.2" in terminal.file.getvalue())  # type: ignore[attr-defined]
    running.trials.end("0001", "pruned", 20, 1)
    running.close("finished")
    thread.join(30)
    assert not thread.is_alive()
    assert last[-1].status == "finished"
    drawn = terminal.file.getvalue()  # type: ignore[attr-defined]
    for words in ("1/5 trials", "best eval/loss 0.1: trial 0000", "running", "2/5 trials", "pruned", "MLflow is away"):
        assert words in drawn


def test_without_a_terminal_there_is_a_line_for_each_change(running: Recorder, working_folder: Path) -> None:
    running.trials.log("0001", 20, {"eval/loss": 0.3})
    running.close("finished")
    pipe = Console(file=io.StringIO(), width=200)
    watch(lambda: load(working_folder), pipe)
    lines = pipe.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.partition(" ")[2] for line in lines] == [
        "trial 0000 finished at step 10, eval/loss 0.1",
        "trial 0001 interrupted at step 20, eval/loss 0.2 at step 10",  # it had not ended when its sweep did
    ]


def watch_it(folder: Path) -> None:
    os.chdir(folder)
    with Path("out").open("w", buffering=1) as out, Path("err").open("w") as err:
        Path("process").write_text(str(os.getpid()))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status, _ = run_command(["show", "s", "--watch"])
        sys.exit(status)


def press_ctrl_c(folder: Path) -> None:
    wait_until(lambda: (folder / "out").exists() and "trial 0000 finished" in (folder / "out").read_text())
    os.kill(int((folder / "process").read_text()), signal.SIGINT)


def test_ctrl_c_leaves_the_watch_and_not_the_sweep(
    running: Recorder, working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watched, interrupted = (functools.partial(each, working_folder) for each in (watch_it, press_ctrl_c))
    assert run_forked([watched, interrupted]) == [0, 0]
    assert Path("err").read_text() == ""
    assert "s running" in Path("out").read_text()
    assert load(working_folder).status == "running"
    running.close("stopped")
    assert run_command(["show", "s", "--watch"]) == (0, None)
    assert "s stopped" in capsys.readouterr().out
    assert "--watch does not print JSON" in refusal("show", "s", "--watch", "--json")


def test_the_watch_of_a_sweep_that_was_stopped_before_a_trial_finished_exits_as_run_does(working_folder: Path) -> None:
    uri, objectives = f"sqlite:///{working_folder}/mlflow.db", Objectives(("eval/loss",), ("min",))
    recorder = open_recorder(uri, "s", objectives, folder=working_folder, experiment="test", config=CONFIG, command="")
    recorder.close("stopped")
    assert run_command(["show", "s", "--watch"]) == (1, None)
    assert run_command(["show", "s"]) == (0, None)


def test_the_tables_of_show_and_list_name_what_was_searched(
    running: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    running.close("finished")
    assert run_command(["show", "s"]) == (0, None)
    header = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("trial"))
    assert header.split() == ["trial", "state", "eval/loss", "step", "took", "a_long_name_that_fills_the_line", "lr"]
    assert run_command(["list"]) == (0, None)
    listed = capsys.readouterr().out.splitlines()
    assert listed[0].split() == ["sweep", "conf", "status", "trials", "best", "metric", "started", "took"]
    assert listed[1].split()[:5] == ["s", "digits", "finished", "2", "0.1"]
