"""A sweep that release 0.1.0 left interrupted: this release lists, shows and resumes it, and refuses what a later
release wrote."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import optuna
import pytest
from earlier_sweep import unpacked
from full_disk import fill
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from running import verb

from sweeps.files.checksums import parsed
from sweeps.files.versions import Format, NewerVersion, release
from sweeps.folders.sweep_folder import COPY_FILE, SWEEP_FILE
from sweeps.plan.saved_sweep import FORMAT
from sweeps.search import study_version
from sweeps.search.study_version import STUDY_FILE, STUDY_VERSION
from sweeps.tracking.journal import JOURNAL_FILE, JOURNAL_VERSION, Journal


@pytest.fixture
def folder(uri: str, tmp_path: Path) -> Path:
    """The sweep's; where it was started is the working folder."""
    return unpacked(tmp_path)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_it_is_listed_and_shown(folder: Path, typed: Any) -> None:
    status, out, _ = typed("list", "--json")
    assert status == 0
    (line,) = json.loads(out)
    assert (line["sweep"], line["status"]) == ("earlier", "interrupted")
    status, out, _ = typed("show", "earlier", "--json")
    assert status == 0
    shown = json.loads(out)
    assert [(trial["trial"], trial["state"]) for trial in shown["trials"]] == [
        ("0000", "finished"),
        ("0001", "finished"),
        ("0002", "pruned"),
        ("0003", "stopped"),
    ]
    assert shown["best"]["trial"] == "0001"


@pytest.mark.slow
def test_it_is_resumed_and_its_files_have_the_versions_of_this_release(folder: Path) -> None:
    shown = verb(folder.parent.parent, "resume", "earlier", "--json").document
    assert shown["status"] == "finished"
    assert [(trial["state"], trial["steps"]) for trial in shown["trials"]][:3] == [
        ("finished", 20),
        ("finished", 20),
        ("pruned", 5),
    ]
    assert shown["trials"][3]["state"] in ("finished", "pruned")
    document = json.loads((folder / SWEEP_FILE).read_text(encoding="utf-8"))
    assert (document["version"], document["written_by"]) == (FORMAT.version, release())
    storage = JournalStorage(JournalFileBackend(str(folder / STUDY_FILE)))
    attributes = optuna.load_study(study_name="earlier", storage=storage).user_attrs
    assert attributes[study_version.VERSION] == STUDY_VERSION
    assert attributes[study_version.WRITTEN_BY] == release()
    assert f'"version": {JOURNAL_VERSION}' in (folder / JOURNAL_FILE).read_text(encoding="utf-8")


def newer_document(folder: Path) -> None:
    for name in (SWEEP_FILE, COPY_FILE):
        document = json.loads((folder / name).read_text(encoding="utf-8"))
        (folder / name).write_text(json.dumps({**document, "version": 99, "written_by": "7.8.9"}), encoding="utf-8")


def newer_study(folder: Path) -> None:
    storage = JournalStorage(JournalFileBackend(str(folder / STUDY_FILE)))
    study = optuna.load_study(study_name="earlier", storage=storage)
    study.set_user_attr(study_version.WRITTEN_BY, "7.8.9")
    study.set_user_attr(study_version.VERSION, 99)


def newer_journal(folder: Path) -> None:
    with (folder / JOURNAL_FILE).open("a", encoding="utf-8") as file:
        file.write('{"kind": "Version", "version": 99, "written_by": "7.8.9"}\n{"kind": "Unheard"}\n')


@pytest.mark.parametrize(
    ("make_newer", "file"), [(newer_document, SWEEP_FILE), (newer_study, STUDY_FILE), (newer_journal, JOURNAL_FILE)]
)
def test_what_a_later_release_wrote_is_refused_before_anything_starts_and_left_alone(
    folder: Path, typed: Any, make_newer: Callable[[Path], None], file: str
) -> None:
    make_newer(folder)
    before = contents(folder)
    status, _, err = typed("resume", "earlier")
    assert status == 2
    said = " ".join(err.split())
    for word in (file, "ray-sweeps 7.8.9", "version 99", release(), "pip install --upgrade ray-sweeps"):
        assert word in said
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("trouble", "words"),
    [("full", "is full*; free some space"), ("read-only", "cannot be written (*Read-only file system*); fix that")],
)
def test_a_sweep_whose_folder_cannot_be_written_says_so_when_it_is_resumed(
    uri: str, tmp_path: Path, small_disk: Callable[[int], Path], typed: Any, trouble: str, words: str
) -> None:
    disk = small_disk(200)
    (tmp_path / "outputs").symlink_to(disk)
    unpacked(tmp_path)
    if trouble == "full":
        fill(disk)
    else:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    status, out, err = typed("resume", "earlier")
    assert (status, out) == (1, "")
    assert fnmatch(" ".join(err.split()), f"sweeps: *{words}, and continue with `python -m sweeps resume earlier`*")


def test_a_journal_from_before_versions_is_read_whole_and_says_from_where_on_it_is_newer(folder: Path) -> None:
    before = (folder / JOURNAL_FILE).read_bytes()
    for _ in range(2):
        opened = Journal(folder)
        entries = list(opened.entries())
        opened.close()
    assert len(entries) == before.count(b"\n")
    after = (folder / JOURNAL_FILE).read_bytes()
    assert after.startswith(before)
    assert parsed(after[len(before) :]) == {"kind": "Version", "version": JOURNAL_VERSION, "written_by": release()}


def test_a_document_goes_forward_step_by_step() -> None:
    steps = Format((lambda old: {**old, "b": old["a"]}, lambda old: {**old, "c": old["b"] + 1}))
    assert steps.version == 3
    assert steps.brought_forward({"a": 1}, "x.json") == {"a": 1, "b": 1, "c": 2}
    assert steps.brought_forward({"version": 2, "b": 5}, "x.json") == {"version": 2, "b": 5, "c": 6}
    written = steps.stamped({"a": 1})
    assert steps.brought_forward(written, "x.json") == {"version": 3, "written_by": release(), "a": 1}
    with pytest.raises(NewerVersion, match=r"x\.json: was written by a later ray-sweeps, in version 4"):
        steps.brought_forward({"version": 4}, "x.json")


def test_a_later_releases_folder_is_not_cleaned(folder: Path, typed: Any) -> None:
    newer_document(folder)
    before = contents(folder)
    status, _, err = typed("clean", "earlier", "--unfinished")
    assert (status, "ray-sweeps 7.8.9" in " ".join(err.split())) == (2, True), err
    assert contents(folder) == before
