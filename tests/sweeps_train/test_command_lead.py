"""The first worker's view of a program: its reports, and the step and metrics of each of its checkpoints."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from training_runs import Recorder

from sweeps_train.command import lead as module
from sweeps_train.command.lead import Lead, Signal
from sweeps_train.command.program import Program
from sweeps_train.config import Checkpoint, CommandConfig, CommandTask
from sweeps_train.config.command import ProgramCheckpoints
from sweeps_train.frameworks.ray_train import FunctionProgress, TrialTrainFnUtils
from sweeps_train.reports.reporter import Stop

LOOKS = (None,) * 3
"""Checks of a program that does nothing, in which its checkpoints are found to be complete."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs do not run beside the tests, so that nothing comes while the first worker waits."""
    monkeypatch.setattr(module, "POLL_S", 0.0)


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

    def report_at(self, measured: tuple[int, dict[str, float]], save: Callable[[Path], None] | None) -> None:
        folder = self.folder.with_name(f"copy{len(self.reports)}")
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


class Scripted:
    """A program that goes on to its next ``yield`` whenever it is asked whether it still runs."""

    def __init__(self, steps: Iterator[None]) -> None:
        self._steps = steps

    def poll(self) -> int | None:
        return next(self._steps, 0)

    def finish_output(self) -> None:
        pass


def lead_of(folder: Path, steps: Iterator[None], *, saves_at_reports: bool = False) -> tuple[Utils, Lead, Program]:
    checkpoints = ProgramCheckpoints(folder=str(folder), pattern="c-*", settled_s=0)
    config = CommandConfig(
        task=CommandTask(kind="command", command="x", checkpoints=checkpoints),
        checkpoint=Checkpoint(),
        objectives=["eval"],
        saves_at_reports=saves_at_reports,
    )
    utils = Utils(folder)
    lead = Lead(config, cast("TrialTrainFnUtils", utils), folder, folder, {}.__getitem__)
    return utils, lead, cast("Program", Scripted(steps))


Act = dict[str, float] | int | None
"""Act of a program: it prints metrics, saves the checkpoint of a step (or removes that of a negative one), or lets
the first worker look."""


def follow(folder: Path, acts: Iterable[Act], **options: Any) -> tuple[Utils, Lead]:
    """Follow a program to its end."""

    def steps() -> Iterator[None]:
        for act in acts:
            match act:
                case dict():
                    lead.take_line(json.dumps(act))
                case int():
                    (folder / f"c-{abs(act)}").write_text("x")
                    if act < 0:
                        (folder / f"c-{abs(act)}").unlink()
                case None:
                    yield

    utils, lead, program = lead_of(folder, steps(), **options)
    to_end(lead, program)
    return utils, lead


def to_end(lead: Lead, program: Program) -> None:
    while (signal := lead.next_signal(program)) != Signal.END:
        if signal == Signal.REPORT:
            lead.report()
    lead.save_last(ended_well=True)


def test_a_checkpoint_has_the_step_of_its_name_and_the_metrics_of_its_report(tmp_path: Path) -> None:
    acts: list[Act] = [{"step": 5, "loss": 1}, {"step": 10, "eval": 10}, 10, *LOOKS]
    acts += [{"step": 15, "loss": 1}, 20, *LOOKS, {"step": 20, "eval": 20}, *LOOKS, 25]  # 20 in the other order
    utils, _ = follow(tmp_path, acts)
    assert [(step, metrics) for step, metrics, _ in utils.reports] == [(10, {"eval": 10}), (20, {"eval": 20})]
    assert utils.checkpoints == [(10, {"eval": 10}, 1), (20, {"eval": 20}, 2), (25, None, 2)]
    assert utils.reporter.logs == {5: {"loss": 1}, 15: {"loss": 1}}


def test_without_steps_a_checkpoint_belongs_to_the_records_before_it(tmp_path: Path) -> None:
    utils, _ = follow(tmp_path, [{"loss": 1}, {"eval": 1}, 100, *LOOKS, {"loss": 1}, {"eval": 2}, 200, *LOOKS])
    assert [step for step, _, _ in utils.reports] == [2, 4]
    assert utils.checkpoints == [(2, {"eval": 1}, 1), (4, {"eval": 2}, 2)]


def test_of_two_checkpoints_at_one_step_the_later_one_is_saved_last(tmp_path: Path) -> None:
    utils, _ = follow(tmp_path, [{"eval": 1}, 1, None, 2])
    assert utils.checkpoints == [(1, {"eval": 1}, 1)] * 2
    assert utils.saved == ["c-1", "c-2"]


@pytest.mark.parametrize(("saves", "kept"), [(False, ["c-1", "c-2"]), (True, [])])
def test_without_steps_an_older_checkpoint_that_gets_another_name_does_not_replace_the_newest_one(
    saves: bool, kept: list[str], tmp_path: Path
) -> None:
    def steps() -> Iterator[None]:
        for number in (1, 2):
            lead.take_line(json.dumps({"eval": number}))
            (tmp_path / f"c-{number}").write_text("x")
            yield from LOOKS
        os.utime(tmp_path / "c-1", (1.0, 1.0))  # the clock of a file system may tick slowly
        (tmp_path / "c-1").rename(tmp_path / "c-best")
        lead.take_line(json.dumps({"eval": 3}))
        yield from LOOKS

    utils, lead, program = lead_of(tmp_path, steps(), saves_at_reports=saves)
    to_end(lead, program)
    assert utils.checkpoints == ([] if saves else [(1, {"eval": 1}, 1), (2, {"eval": 2}, 2)])
    assert utils.saved == kept
    assert [files for _, _, files in utils.reports] == ([["c-1"], ["c-2"], []] if saves else [[]] * 3)


FOUR: list[dict[str, float]] = [{"step": step, "eval": step} for step in range(1, 5)]


@pytest.mark.parametrize(
    ("acts", "reports", "logs"),
    [
        pytest.param(
            [*FOUR[:2], 2, *LOOKS, *FOUR[2:], 4, *LOOKS],
            [(2, {"eval": 2}, ["c-2"]), (4, {"eval": 4}, ["c-4"])],
            {1: {"eval": 1}, 3: {"eval": 3}},
            id="reports wait for their checkpoint",
        ),
        pytest.param(
            [FOUR[0], 1, FOUR[1], 2, FOUR[2], 3, None],
            [(1, {"eval": 1}, ["c-1"]), (3, {"eval": 3}, ["c-3"])],
            {2: {"eval": 2}},
            id="the last of several that are found together comes with its report",
        ),
        pytest.param(
            [{"eval": 1}, 1, {"eval": 2}, 2, {"eval": 3}, 3, None],
            [(3, {"eval": 3}, ["c-3"])],
            {1: {"eval": 1}, 2: {"eval": 2}},
            id="without steps the last of several that are found together comes with the last report",
        ),
        pytest.param(
            [FOUR[0], 1, *LOOKS, *FOUR[1:], None],
            [(1, {"eval": 1}, ["c-1"]), (4, {"eval": 4}, [])],
            {2: {"eval": 2}, 3: {"eval": 3}},
            id="the last report is the result without one",
        ),
    ],
)
def test_reports_and_checkpoints_come_together_if_trials_are_paused_or_copied(
    acts: list[Act], reports: list[Any], logs: dict[int, Any], tmp_path: Path
) -> None:
    utils, _ = follow(tmp_path, acts, saves_at_reports=True)
    assert (utils.reports, utils.reporter.logs, utils.checkpoints) == (reports, logs, [])


def test_without_steps_a_checkpoint_comes_with_the_report_before_it_if_a_later_one_waits_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_WITHIN_S", 0.0)

    def steps() -> Iterator[None]:
        for number in (1, 2):
            lead.take_line(json.dumps({"eval": number}))
            (tmp_path / f"c-{number}").write_text("x")
            os.utime(tmp_path / f"c-{number}", (now := time.time(), now))  # the clock of a file system is coarser
            if number == 1:
                yield  # found when it has not changed, at which time the next report has come
        yield from LOOKS

    utils, lead, program = lead_of(tmp_path, steps(), saves_at_reports=True)
    to_end(lead, program)
    assert utils.reports == [(1, {"eval": 1}, ["c-1"]), (2, {"eval": 2}, ["c-2"])]


def test_a_checkpoint_that_the_program_removes_before_its_report_is_left_out(tmp_path: Path) -> None:
    acts = [{"step": 50, "loss": 1}, 100, *LOOKS, -100, 200, *LOOKS, -200, 300, *LOOKS, {"step": 300, "eval": 1}]
    utils, _ = follow(tmp_path, acts)
    assert utils.saved == ["c-300"]
    assert utils.checkpoints == [(300, {"eval": 1}, 1)]
    (note,) = utils.reporter.notes
    assert note.startswith("task.checkpoints: the program removed c-100 before it was copied; let it keep more")


def test_a_report_whose_checkpoint_the_program_has_removed_waits_for_the_next_one(tmp_path: Path) -> None:
    acts = [100, *LOOKS, -100, {"step": 100, "eval": 1}, *LOOKS, 200, *LOOKS]
    utils, _ = follow(tmp_path, acts, saves_at_reports=True)
    assert utils.reports == [(100, {"eval": 1}, ["c-200"])]
    assert len(utils.reporter.notes) == 1


def test_a_program_without_the_metric_is_told_what_it_has(tmp_path: Path) -> None:
    utils, lead = follow(tmp_path, [{"evil": 1, "loss": 2}, None])
    assert utils.reports == []
    assert lead.why_silent().startswith(
        "search.metric=eval: the program ended without reporting it; it reported only evil, loss"
    )


def test_an_evaluation_before_the_first_step_is_recorded_and_its_checkpoint_is_no_result(tmp_path: Path) -> None:
    utils, _ = follow(tmp_path, [{"step": 0, "eval": 0}, 0, *LOOKS, {"step": 10, "eval": 10}, 10, *LOOKS])
    assert [(step, metrics) for step, metrics, _ in utils.reports] == [(10, {"eval": 10})]
    assert utils.reporter.logs == {0: {"eval": 0}}
    assert utils.checkpoints == [(0, None, 0), (10, {"eval": 10}, 1)]


@pytest.mark.parametrize("saves", [False, True])
def test_records_that_no_checkpoint_can_need_any_more_are_forgotten(saves: bool, tmp_path: Path) -> None:
    acts = [act for step in range(1, 50) for act in ({"step": step, "loss": 1}, {"step": step, "eval": 1}, step, None)]
    _, lead = follow(tmp_path, [*acts, *LOOKS], saves_at_reports=saves)
    assert len(lead._history) < 10


@pytest.mark.parametrize(("saves", "files"), [(False, []), (True, ["c-1"])])
def test_a_program_that_ends_with_nothing_but_step_0_has_that_as_its_result(
    saves: bool, files: list[str], tmp_path: Path
) -> None:
    utils, _ = follow(tmp_path, [{"step": 0, "eval": 3}, 1, None], saves_at_reports=saves)
    assert utils.reports == [(1, {"eval": 3}, files)]


def test_what_a_program_printed_last_is_read_before_its_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, lead, program = lead_of(tmp_path, iter(()))
    monkeypatch.setattr(program, "finish_output", lambda: lead.take_line('{"eval": 1}'))
    assert lead.next_signal(program) == Signal.REPORT


def test_a_request_to_stop_is_noticed_while_the_program_prints_nothing(tmp_path: Path) -> None:
    utils, lead, program = lead_of(tmp_path, itertools.repeat(None))
    assert lead.next_signal(program) == Signal.WAIT
    utils.reporter.stop_when_asked, utils.reporter.stop = 0, Stop.SAVE
    assert lead.next_signal(program) == Signal.STOP
