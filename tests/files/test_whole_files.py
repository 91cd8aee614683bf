"""Files that are written completely or not at all."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from sweeps.files.whole_files import replacing, write_json


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


def test_readers_see_the_old_file_until_the_new_one_is_complete(folder: Path) -> None:
    file = folder / "file"
    file.write_text("old")
    with replacing(file) as unfinished:
        unfinished.write_text("new")
        assert file.read_text() == "old"
    assert file.read_text() == "new"
    assert list(folder.iterdir()) == [file]


def test_a_failure_leaves_the_old_file(folder: Path) -> None:
    file = folder / "file"
    file.write_text("old")

    def fail_halfway() -> None:
        with replacing(file) as unfinished:
            unfinished.write_text("ne")
            raise OSError("no space on the disk")

    with pytest.raises(OSError, match="no space"):
        fail_halfway()
    assert file.read_text() == "old"
    assert list(folder.iterdir()) == [file]


def test_a_folder_replaces_one_with_other_files_and_what_a_crash_has_left(folder: Path) -> None:
    for name in ("new", "new.unfinished", "new.replaced"):
        (folder / name).mkdir()
        (folder / name / "old").touch()
    with replacing(folder / "new") as unfinished:
        unfinished.mkdir()
        (unfinished / "file").touch()
    assert [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*"))] == ["new", "new/file"]


def test_json_is_private_and_replaced(folder: Path) -> None:
    file = folder / "file.json"
    file.write_text("{}")
    write_json(file, {"key": [1, "ü"]})
    assert json.loads(file.read_text()) == {"key": [1, "ü"]}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
