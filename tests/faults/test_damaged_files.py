"""Bits that a disk flips in the files of a sweep are corrected; greater damage is named, and never believed."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pytest
from composing import composed
from earlier_sweep import unpacked
from recording import CONFIG, POINT, history, open_recorder
from stores import make_store

from sweeps.driver.early_end import Shutdown
from sweeps.driver.report_decisions import Decisions
from sweeps.driver.sweep_state import SweepState
from sweeps.driver.worker_events import WorkerEvents
from sweeps.files.checksums import end_last_line, is_intact, mend, parsed
from sweeps.files.whole_files import write_json
from sweeps.folders.driver_lock import DRIVER_FILE, last_heartbeat, only_driver
from sweeps.folders.sweep_folder import COPY_FILE, SWEEP_FILE
from sweeps.plan.resume import reopened
from sweeps.runtime.events import Report
from sweeps.runtime.report_log import REPORT_LOG_FILE, ReportLog, read_report_log
from sweeps.search.samplers.earlier_sweep import EarlierSweep
from sweeps.search.samplers.saved_trials import EARLIER_FILE, save_earlier, saved_earlier
from sweeps.search.study_file import StudyFile, open_study_storage
from sweeps.search.study_version import STUDY_FILE, check_study
from sweeps.tracking.journal import JOURNAL_FILE, POSITION_FILE, Journal, is_delivered
from sweeps.tracking.reader import load_sweep

PLACES = 60
"""Number of places in each file at which a bit is flipped."""
LOG = f"trials/0001/{REPORT_LOG_FILE}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a sweep with all files that `resume` trusts, as this release writes them."""
    old, new = tmp_path_factory.mktemp("old"), tmp_path_factory.mktemp("new")
    make_store(old / "mlflow.db")
    old = unpacked(old)
    log = ReportLog(str((new / LOG).parent))
    for event in read_report_log(str((old / LOG).parent)):
        log.write(event)
    log.close()
    before, journal = Journal(old), Journal(new)
    for entry in before.entries():
        journal.append(entry)
    journal.advance(journal.end)
    journal.close()
    before.close()
    StudyFile(new / STUDY_FILE).append_logs([json.loads(line) for line in (old / STUDY_FILE).read_bytes().splitlines()])
    document = json.loads((old / SWEEP_FILE).read_text(encoding="utf-8"))
    for name in (SWEEP_FILE, COPY_FILE):
        write_json(new / name, document, indent=1, checksum=True)
    save_earlier(new, [EarlierSweep("before", [{"train.lr": number / 7} for number in range(20)], [0.5] * 20)])
    with only_driver(new, "earlier"):
        beat = (new / DRIVER_FILE).read_bytes()
    (new / DRIVER_FILE).write_bytes(beat)  # as after a driver that was killed
    return new


def journal(folder: Path) -> object:
    opened = Journal(folder)
    entries = list(opened.entries())
    assert opened.lost_lines == ()
    opened.close()
    return entries, is_delivered(folder)


def position(folder: Path) -> object:
    """Whether nothing that MLflow has not taken counts as delivered: to deliver all of it again changes nothing."""
    opened = Journal(folder)
    at, end = opened.position, opened.end
    opened.close()
    return at in (0, end)


def study(folder: Path) -> object:
    check_study(folder)
    storage, _ = open_study_storage(folder / STUDY_FILE)
    found = optuna.load_study(study_name="earlier", storage=storage)
    return found.user_attrs, [
        (trial.state, trial.params, trial.values, trial.intermediate_values, trial.user_attrs, trial.system_attrs)
        for trial in found.get_trials()
    ]


READERS: dict[str, Callable[[Path], object]] = {
    JOURNAL_FILE: journal,
    POSITION_FILE: position,
    LOG: lambda folder: list(read_report_log(str((folder / LOG).parent))),
    STUDY_FILE: study,
    SWEEP_FILE: lambda folder: parsed((folder / SWEEP_FILE).read_bytes()),
    COPY_FILE: lambda folder: parsed((folder / COPY_FILE).read_bytes()),
    EARLIER_FILE: saved_earlier,
    DRIVER_FILE: last_heartbeat,
}


def test_every_file_of_the_folder_has_a_reader_here(whole: Path) -> None:
    files = {str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file()}
    assert files - {"driver.lock"} == READERS.keys()


@pytest.mark.parametrize("name", READERS)
def test_a_flipped_bit_changes_nothing_that_is_read(whole: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "sweep"
    shutil.copytree(whole, folder)
    intact, before = (whole / name).read_bytes(), READERS[name](folder)
    chosen = random.Random(name)
    for _ in range(PLACES):
        damaged = bytearray(intact)
        place = chosen.randrange(len(intact))
        damaged[place] ^= 1 << chosen.randrange(8)
        (folder / name).write_bytes(damaged)
        assert READERS[name](folder) == before, f"byte {place}: {intact[place]} became {damaged[place]}"


@pytest.mark.parametrize("name", [JOURNAL_FILE, LOG, STUDY_FILE])
def test_a_flipped_bit_in_a_line_is_corrected_on_the_disk_and_its_line_named(
    whole: Path, tmp_path: Path, name: str
) -> None:
    intact, file = (whole / name).read_bytes(), tmp_path / "lines"
    chosen = random.Random(name)
    for _ in range(PLACES):
        damaged = bytearray(intact)
        place = chosen.randrange(len(intact))
        damaged[place] ^= 1 << chosen.randrange(8)
        file.write_bytes(damaged)
        damage = mend(file)
        assert file.read_bytes() == intact
        assert len(damage.corrected) == 1
        assert not damage.lost


@pytest.mark.parametrize("name", [JOURNAL_FILE, LOG, STUDY_FILE])
def test_a_line_that_is_damaged_beyond_a_bit_is_named_and_not_believed(whole: Path, tmp_path: Path, name: str) -> None:
    lines = (whole / name).read_bytes().splitlines()
    assert all(map(is_intact, lines))
    chosen, file = random.Random(name), tmp_path / "lines"
    for _ in range(PLACES):
        number = chosen.randrange(len(lines))
        line = bytearray(lines[number])
        for place in chosen.sample(range(len(line)), 3):
            line[place] = chosen.choice([each for each in b"0123456789abcdef\0" if each != line[place]])
        file.write_bytes(b"\n".join([*lines[:number], bytes(line), *lines[number + 1 :]]) + b"\n")
        assert mend(file).lost == (number + 1,)
        with pytest.raises(ValueError, match=r"checksum|JSON|Expecting|delimiter|character|decode|Extra|Invalid"):
            parsed(bytes(line))


def test_lines_without_a_checksum_of_an_earlier_release_are_no_damage(tmp_path: Path) -> None:
    make_store(tmp_path / "mlflow.db")
    folder = unpacked(tmp_path)
    for name in (JOURNAL_FILE, LOG, STUDY_FILE):
        before = (folder / name).read_bytes()
        half = before.splitlines()[1][:30] + b"\n"  # it ended what a killed writer had left
        for content in (before, before + half + before):
            (folder / name).write_bytes(content)
            assert not mend(folder / name)
            assert (folder / name).read_bytes() == content


def test_half_a_line_of_a_killed_writer_is_no_damage(whole: Path, tmp_path: Path) -> None:
    lines, file = (whole / JOURNAL_FILE).read_bytes().splitlines(keepends=True), tmp_path / "lines"
    file.write_bytes(lines[0] + lines[1] + lines[2][:70])
    assert not mend(file)
    end_last_line(file)
    assert file.read_bytes() == lines[0] + lines[1]
    for newline in (b"", b"*", b"J"):  # flipped bits
        file.write_bytes(lines[0] + lines[1].rstrip() + newline)
        end_last_line(file)
        assert file.read_bytes() == lines[0] + lines[1]
    file.write_bytes(lines[0] + lines[1][:40] + b"\n" + lines[2])
    assert mend(file).lost == (2,), "a writer would have cut it off"


def test_a_sweep_is_read_from_the_copy_if_its_file_is_damaged_and_says_so(
    tmp_path: Path, uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = unpacked(tmp_path)
    record = load_sweep(uri, "earlier")
    before = reopened(record, {}).composition
    for name in (SWEEP_FILE, COPY_FILE):
        write_json(folder / name, json.loads((folder / name).read_text(encoding="utf-8")), indent=1, checksum=True)
    text = (folder / SWEEP_FILE).read_bytes()
    (folder / SWEEP_FILE).write_bytes(text.replace(b'"seed": 0', b'"seed": 31'))
    assert (folder / SWEEP_FILE).read_bytes() != text
    assert reopened(record, {}).composition == before
    assert f"{folder / SWEEP_FILE} is damaged" in caplog.text


def test_what_a_damaged_journal_had_of_ended_trials_is_recorded_from_their_report_logs(
    tmp_path: Path, uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = open_recorder(uri)
    folder = tmp_path / "outputs" / "digits-1"
    log = ReportLog(str(folder / "trials" / "0000"))
    recorder.trials.start("0000", POINT, CONFIG, 1)
    for step in (10, 20, 30):
        report = Report("0000", 1, step, {"eval/loss": 1 / step}, 1000 * step)
        log.write(report)
        recorder.trials.log("0000", step, report.metrics, report.timestamp_ms)
    log.close()
    recorder.trials.end("0000", "finished", 30, 1)
    recorder.close("interrupted")
    run_id = load_sweep(uri, "digits-1").trials[0].run_id
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as store, store:  # as if it had not taken this line yet
        store.execute("DELETE FROM metrics WHERE run_uuid = ? AND step = 20", (run_id,))
    file = folder / JOURNAL_FILE
    lines = file.read_bytes().splitlines(keepends=True)
    (number,) = [index for index, line in enumerate(lines) if b'"Points", "key": "0000", "step": 20' in line]
    lines[number] = lines[number][:40] + bytes(30) + lines[number][70:]
    file.write_bytes(b"".join(lines))
    resumed = open_recorder(uri, resume=True)
    assert f"line {number + 1} cannot be read" in caplog.text
    assert resumed.lost_entries
    nothing: Any = None
    earlier = load_sweep(uri, "digits-1")
    composition = composed("digits", "search.metric=eval/loss", "search.mode=min")
    state = SweepState("digits-1", composition, nothing, 1, Shutdown(nothing), folder=folder, earlier=earlier)
    WorkerEvents(state, resumed, Decisions(state.objectives, nothing, nothing)).record_again()
    resumed.close("finished")
    assert history(uri, run_id, "eval/loss") == [(10, 1 / 10), (20, 1 / 20), (30, 1 / 30)]
