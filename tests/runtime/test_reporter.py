"""The main worker's events reach the broker in their order, also if that runs its calls in another one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attempts import assignment
from local_actor import LOCAL_RAY, LocalActor, event_loop

from sweeps.runtime import broker_sides, trial_reporter
from sweeps.runtime.broker_sides import WorkersSide
from sweeps.runtime.events import Log, Report, Saved, Started
from sweeps.runtime.report_log import ReportLog, read_report_log
from sweeps.runtime.trial_reporter import BrokerReporter
from sweeps_train.reports.progress import Progress

LATE_S = 0.3


class LateBroker:
    """Begins with a call that has only logs later than with the next one, as an asynchronous actor may."""

    def __init__(self) -> None:
        self._steps: list[int] = []

    async def post(self, event: Any) -> None:
        if not isinstance(event, Started):
            self._steps.append(event.step)

    async def post_all(self, events: list[Log]) -> None:
        if not isinstance(events[-1], Report):
            await asyncio.sleep(LATE_S)
        for event in events:
            await self.post(event)

    async def post_and_wait(self, events: list[Log]) -> None:
        await self.post_all(events)

    async def wait_for_stop(self, *given: Any) -> None:
        await asyncio.Event().wait()

    async def steps(self) -> list[int]:
        return self._steps


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for module in (broker_sides, trial_reporter):
        monkeypatch.setattr(module, "ray", LOCAL_RAY)
    with event_loop() as loop:
        yield LocalActor(LateBroker(), loop)


@pytest.mark.parametrize("waits_for_decision", [False, True])
def test_the_logs_before_a_report_reach_the_broker_before_it(
    broker: Any, tmp_path: Path, waits_for_decision: bool
) -> None:
    given = replace(assignment("0003", 1), checkpoint_folder=str(tmp_path), broker=WorkersSide(broker))
    reporter = BrokerReporter(replace(given, waits_for_decision=waits_for_decision))
    for step in range(1, 13):
        reporter.log(Progress(step=step), {"train/loss": 1.0})
        if step % 4 == 0:
            checkpoint = str(tmp_path / "step-8") if step == 8 else None
            reporter.report(Progress(step=step), {"eval/loss": 1.0}, checkpoint, step == 12)
    reporter.flush()
    assert LOCAL_RAY.get(broker.steps.remote()) == sorted([*range(1, 13), 4, 8, 12])
    reports = [event for event in read_report_log(str(tmp_path)) if isinstance(event, Report)]
    assert [each.saved for each in reports] == [False, True, False]


def test_a_checkpoint_that_is_saved_after_its_report_has_the_cost_that_was_reported(
    broker: Any, tmp_path: Path
) -> None:
    given = replace(assignment("0003", 1), checkpoint_folder=str(tmp_path), broker=WorkersSide(broker))
    given = replace(given, hourly={"system/cost": 3600.0})
    reporter = BrokerReporter(given)
    reporter.report(Progress(step=4), {"eval/loss": 1.0}, None, done=False)
    reporter.checkpoint(Progress(step=4), {"eval/loss": 1.0}, str(tmp_path / "step-4"))
    reporter.flush()
    report, saved = read_report_log(str(tmp_path))
    assert isinstance(saved, Saved)
    assert saved.metrics == report.metrics
    assert saved.metrics["system/cost"] > 0
    again = BrokerReporter(replace(given, attempt=2))  # its checkpoint reached the store, and then its worker died
    again.checkpoint(Progress(step=4), {"eval/loss": 1.0}, str(tmp_path / "step-4"))
    again.flush()
    *_, announced = read_report_log(str(tmp_path))
    assert announced.metrics == report.metrics


@pytest.mark.parametrize("first", ["log", "report", "late evaluation"])
def test_what_a_killed_worker_had_not_sent_before_its_checkpoint_is_sent_by_the_next_attempt(
    broker: Any, tmp_path: Path, first: str
) -> None:
    spool = ReportLog(str(tmp_path))
    for step in range(1, 9):
        spool.write(Log("0003", 1, step, {"train/loss": 1.0}, 1000))
    spool.close()
    (tmp_path / "step-00000006").mkdir()  # it goes on from there, and trains steps 7 and 8 again
    given = replace(assignment("0003", 2), checkpoint_folder=str(tmp_path), broker=WorkersSide(broker))
    reporter = BrokerReporter(given)
    if first == "log":
        reporter.log(Progress(step=7), {"train/loss": 1.0})
    else:
        reporter.report(Progress(step=6 if first == "report" else 4), {"eval/loss": 1.0}, None, done=False)
        reporter.log(Progress(step=7), {"train/loss": 1.0})
    reporter.flush()
    assert sorted({*LOCAL_RAY.get(broker.steps.remote())}) == [*range(1, 8)]


def test_a_checkpoint_is_found_in_a_folder_whose_path_has_a_part_named_like_one(tmp_path: Path) -> None:
    folder = tmp_path / "step-size" / "trials" / "0003"
    log = ReportLog(str(folder))
    for step, name in ((4, "step-00000004"), (8, "step-00000008/files")):
        log.write(Report("0003", 1, step, {"eval/loss": 0.5}, 1, checkpoint=str(folder / name)))
    log.close()
    moved = folder.parents[1].rename(tmp_path / "step-moved") / "trials" / "0003"
    found = [event.checkpoint for event in read_report_log(str(moved)) if isinstance(event, Report)]
    assert found == [str(moved / "step-00000004"), str(moved / "step-00000008" / "files")]


def test_a_line_that_is_no_event_of_this_release_keeps_no_sweep_from_being_resumed(tmp_path: Path) -> None:
    log, event = ReportLog(str(tmp_path)), Report("0003", 1, 4, {"eval/loss": 0.5}, 1)
    log.write(event)
    log.close()
    with (tmp_path / "reports.jsonl").open("a") as file:
        file.write('{"kind": "Other", "step": 1}\n{"kind": "Report", "other": 1}\n{}\n[1]\n')
    assert [*read_report_log(str(tmp_path))] == [event]
