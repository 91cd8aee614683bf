"""The first worker's view of a program: its reports, and the step and metrics of each of its checkpoints."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from training_runs import Recorder

from sweeps_train.command.lead import Lead, Signal
from sweeps_train.command.program import Program
from sweeps_train.config import Checkpoint, CommandConfig, CommandTask
from sweeps_train.config.command import ProgramCheckpoints
from sweeps_train.frameworks.ray_train import FunctionProgress, TrialTrainFnUtils
from sweeps_train.reports.reporter import Stop

START = """
import json, time, pathlib

def save(step):
    pathlib.Path(f"c-{step}").write_text("x")
"""


class Utils:
    """Takes what a trial reports, in the place of a Ray Train worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "saved"
        self.saved: list[str] = []
        self.reporter = Recorder()
        self.progress = FunctionProgress()
        self.reports: list[tuple[int, dict[str, float], list[str]]] = []
        self.checkpoints: list[tuple[int, dict[str, float] | None, int]] = []
        self.newest_step: int | None = None

    def report(self, measured: tuple[int, dict[str, float]], save: Callable[[Path], None] | None, folder: Path) -> None:
        if save is not None:
            save(folder)
        self.reports.append((*measured, sorted(each.name for each in folder.glob("*"))))
        self.progress = FunctionProgress(step=measured[0], evaluations=self.progress.evaluations + 1)

    def add_checkpoint(self, progress: FunctionProgress, metrics: dict[str, float] | None, save: Any) -> None:
        self.checkpoints.append((progress.step, metrics, progress.evaluations))
        self.folder.mkdir(exist_ok=True)
        save(self.folder)
        self.saved += [each.name for each in self.folder.iterdir() if each.name not in self.saved]
        self.newest_step = progress.step


def follow(folder: Path, code: str, *, saves_at_reports: bool = False, **task: Any) -> tuple[Utils, Lead]:
    """Run a program to its end; returns what was reported."""
    utils = Utils(folder)
    config = CommandConfig(
        task=CommandTask(
            kind="command",
            command="x",
            checkpoints=ProgramCheckpoints(folder=str(folder), pattern="c-*", settled_s=0),
            **task,
        ),
        checkpoint=Checkpoint(),
        objectives=["eval"],
        saves_at_reports=saves_at_reports,
    )
    lead = Lead(config, cast("TrialTrainFnUtils", utils), folder, folder, {}.__getitem__)
    program = Program(
        [sys.executable, "-u", "-c", START + code],
        environment=dict(os.environ),
        grace_s=1,
        folder=str(folder),
        on_line=lead.take_line,
    )
    deadline = time.monotonic() + 60
    while (signal := lead.next_signal(program)) != Signal.END:
        assert time.monotonic() < deadline
        if signal == Signal.REPORT:
            due = lead.take_due()
            assert due.measured is not None
            utils.report(due.measured, due.save, folder / f"copy{len(utils.reports)}")
            lead.reported()
    program.end()
    lead.save_last(ended_well=program.poll() == 0)
    return utils, lead


def test_a_checkpoint_has_the_step_of_its_name_and_the_metrics_of_its_report(tmp_path: Path) -> None:
    code = """
for step in (10, 20):
    print(json.dumps({"step": step - 5, "loss": 1}))
    if step == 10:
        print(json.dumps({"step": step, "eval": step}))
        save(step)
    else:  # the other order
        save(step)
        time.sleep(1.5)
        print(json.dumps({"step": step, "eval": step}))
    time.sleep(1.5)
save(25)
"""
    utils, _ = follow(tmp_path, code)
    assert [(step, metrics) for step, metrics, _ in utils.reports] == [(10, {"eval": 10}), (20, {"eval": 20})]
    assert utils.checkpoints == [(10, {"eval": 10}, 1), (20, {"eval": 20}, 2), (25, None, 2)]
    assert utils.reporter.logs == {5: {"loss": 1}, 15: {"loss": 1}}


def test_without_steps_a_checkpoint_belongs_to_the_records_before_it(tmp_path: Path) -> None:
    code = """
print({"loss": 1}); print({"eval": 1}); save(100)
time.sleep(2.5)
print({"loss": 1}); print({"eval": 2}); save(200)
"""
    utils, _ = follow(tmp_path, code)
    assert [step for step, _, _ in utils.reports] == [2, 4]
    assert utils.checkpoints == [(2, {"eval": 1}, 1), (4, {"eval": 2}, 2)]


def test_of_two_checkpoints_at_one_step_the_later_one_is_saved_last(tmp_path: Path) -> None:
    utils, _ = follow(tmp_path, 'print({"eval": 1}); save(1); time.sleep(0.1); save(2)')
    assert [step for step, _, _ in utils.checkpoints] == [1, 1]
    assert utils.saved == ["c-1", "c-2"]


def test_reports_wait_for_their_checkpoint_if_trials_are_paused_or_copied(tmp_path: Path) -> None:
    code = """
for step in (1, 2, 3, 4):
    print(json.dumps({"step": step, "eval": step}))
    if step % 2 == 0:
        save(step)
        time.sleep(1.5)
"""
    utils, _ = follow(tmp_path, code, saves_at_reports=True)
    assert utils.reports == [(2, {"eval": 2}, ["c-2"]), (4, {"eval": 4}, ["c-4"])]
    assert utils.reporter.logs == {1: {"eval": 1}, 3: {"eval": 3}}
    assert utils.checkpoints == []


def test_a_program_without_the_metric_is_told_what_it_has(tmp_path: Path) -> None:
    utils, lead = follow(tmp_path, 'print({"evil": 1, "loss": 2})')
    assert utils.reports == []
    assert lead.why_silent().startswith(
        "search.metric=eval: the program ended without reporting it; it reported only evil, loss"
    )


def test_an_evaluation_before_the_first_step_is_recorded_and_its_checkpoint_is_no_result(tmp_path: Path) -> None:
    code = """
for step in (0, 10):
    print(json.dumps({"step": step, "eval": step}))
    save(step)
    time.sleep(1.5)
"""
    utils, _ = follow(tmp_path, code)
    assert [(step, metrics) for step, metrics, _ in utils.reports] == [(10, {"eval": 10})]
    assert utils.reporter.logs == {0: {"eval": 0}}
    assert utils.checkpoints == [(0, None, 0), (10, {"eval": 10}, 1)]


def test_a_program_that_ends_with_nothing_but_step_0_has_that_as_its_result(tmp_path: Path) -> None:
    utils, _ = follow(tmp_path, 'print({"step": 0, "eval": 3})')
    assert [(step, metrics) for step, metrics, _ in utils.reports] == [(1, {"eval": 3})]


def test_a_request_to_stop_is_noticed_while_the_program_prints_nothing(tmp_path: Path) -> None:
    utils = Utils(tmp_path)
    config = CommandConfig(task=CommandTask(kind="command", command="x"), checkpoint=Checkpoint(), objectives=["eval"])
    lead = Lead(config, cast("TrialTrainFnUtils", utils), tmp_path, tmp_path, {}.__getitem__)
    program = Program(["sleep", "60"], environment=dict(os.environ), grace_s=1, on_line=lead.take_line)
    assert lead.next_signal(program) == Signal.WAIT
    utils.reporter.stop_when_asked, utils.reporter.stop = 0, Stop.SAVE
    began = time.monotonic()
    assert lead.next_signal(program) == Signal.STOP
    program.end()
    assert time.monotonic() - began < 10
