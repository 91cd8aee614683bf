"""A broken disk loses nothing that a worker has reported before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from disk import Disk

from sweeps.runtime.events import Log, Report
from sweeps.runtime.report_log import ReportLog, read_report_log


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "outputs")
    yield disk
    disk.unmount()


@pytest.mark.skipif(not Disk.is_possible(), reason="needs root and loop devices")
def test_a_report_is_on_the_disk_before_it_is_posted(disk: Disk) -> None:
    folder = str(disk.folder / "trials" / "0003")
    log = ReportLog(folder)
    events = [Log("0003", 1, 10, {"train/loss": 0.5}, 1), Report("0003", 1, 20, {"eval/loss": 0.4}, 2)]
    for event in events:
        log.write(event)
    disk.break_down()
    log.close()
    disk.repair()
    assert [*read_report_log(folder)] == events
