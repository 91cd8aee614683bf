"""A broken disk loses nothing that a worker has reported before."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from disk import Disk
from lost_broker import NET, SLOW_NET
from processes import outputs
from recording import CONFIG, POINT, open_recorder
from running import NO_PREFLIGHT, SHORT, ended, start
from waiting import wait_until

from sweeps.runtime.events import Log, Report
from sweeps.runtime.report_log import ReportLog, read_report_log
from sweeps.tracking.journal import JOURNAL_FILE
from sweeps.tracking.reader import load_sweep


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


@pytest.mark.skipif(not Disk.is_possible(), reason="needs root and loop devices")
def test_a_checkpoint_that_mlflow_names_is_on_the_disk(disk: Disk, uri: str, tmp_path: Path) -> None:
    (checkpoint := tmp_path / "step-00000010").mkdir()
    (checkpoint / "model").write_bytes(content := os.urandom(1 << 20))
    (tmp_path / "mlruns").symlink_to(disk.folder)
    recorder = open_recorder(uri, folder=tmp_path / "sweep")
    recorder.trials.start("0", POINT, CONFIG, 1)
    recorder.trials.record_checkpoint("0", str(checkpoint), "best")
    wait_until(lambda: [each.checkpoint is not None for each in load_sweep(uri, "digits-1").trials] == [True])
    disk.break_down()
    recorder.close("interrupted", patience_s=0)
    disk.repair()
    assert [file.read_bytes() for file in disk.folder.rglob("checkpoints/best/model")] == [content]


@pytest.mark.skipif(not Disk.is_possible(), reason="needs root and loop devices")
def test_a_text_that_is_not_sent_to_mlflow_again_is_on_the_disk(disk: Disk, uri: str, tmp_path: Path) -> None:
    (tmp_path / "mlruns").symlink_to(disk.folder)
    recorder = open_recorder(uri, folder=tmp_path / "sweep")
    recorder.trials.start("0", POINT, CONFIG, 1)
    wait_until(lambda: '"Stored", "key": "0"' in (tmp_path / "sweep" / JOURNAL_FILE).read_text())
    disk.break_down()
    recorder.close("interrupted", patience_s=0)
    disk.repair()
    assert [file.read_text() for file in disk.folder.rglob("config.yaml")] == [CONFIG, CONFIG]


@pytest.mark.slow
def test_a_sweep_whose_folder_is_taken_away_ends_and_continues_once_it_is_back(tmp_path: Path) -> None:
    """As when its disk is unmounted."""
    (tmp_path / "nets.py").write_text(NET, encoding="utf-8")
    one = ("search.num_trials=3", "search/scheduler=none", "scaling.num_workers=1", "cluster.num_cpus=1")
    arguments = ("conf=digits", *SHORT, *SLOW_NET, *one, NO_PREFLIGHT, "tracking.report=false", "--name=away")
    process, folder = start(tmp_path, "run", *arguments), tmp_path / "outputs" / "away"
    wait_until(lambda: list(folder.glob("trials/*/reports.jsonl")), 200)
    folder.rename(tmp_path / "elsewhere")
    _, err = outputs(process, 200)
    assert process.returncode == 1, err
    assert err.strip().splitlines()[-1].endswith("continue with `python -m sweeps resume away`"), err
    shutil.rmtree(folder)  # what was written in its place
    (tmp_path / "elsewhere").rename(folder)
    assert ended(tmp_path, start(tmp_path, "resume", "away", "--json")).document["counts"]["finished"] == 3
