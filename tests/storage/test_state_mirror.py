"""The copy of a driver's files in an object store: complete at every moment, whoever dies."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import wait_until

from sweeps.files.checksums import mend, with_checksum
from sweeps.storage import state_mirror
from sweeps.storage.object_store import ObjectStore
from sweeps.storage.state_mirror import StateMirror, has_state, newer_files, refresh

pytestmark = pytest.mark.timeout(120)

WRITER = """
import sys, time
from pathlib import Path
from sweeps.storage import state_mirror
from sweeps.storage.object_store import ObjectStore

state_mirror.COPY_EVERY_S = 0.01
folder = Path(sys.argv[1])
state_mirror.StateMirror(ObjectStore(sys.argv[2]), folder).start()
count = len((folder / "causes.jsonl").read_text().splitlines()) if (folder / "causes.jsonl").exists() else 0
with (folder / "causes.jsonl").open("a") as causes, (folder / "effects.jsonl").open("a") as effects:
    while True:
        count += 1
        for file in (causes, effects):
            file.write(f"{count}\\n")
            file.flush()
        time.sleep(0.001)
"""


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(f"file://{tmp_path}/bucket/sweeps/first")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "here"
    made.mkdir()
    return made


def started(store: ObjectStore, folder: Path) -> StateMirror:
    mirror = StateMirror(store, folder)
    mirror.start()
    return mirror


def elsewhere(store: ObjectStore, folder: Path) -> dict[str, str]:
    """The files that a machine without any reads."""
    folder.mkdir(exist_ok=True)
    refresh(store, folder)
    return {path.name: path.read_text() for path in sorted(folder.iterdir()) if not path.name.startswith(".")}


def test_another_machine_reads_what_was_copied(store: ObjectStore, folder: Path, tmp_path: Path) -> None:
    (folder / "sweep.json").write_text("{}")
    mirror = started(store, folder)
    (folder / "study.log").write_text("one\n")
    (folder / "driver.json").write_text("of this machine alone")
    mirror.copy()
    with (folder / "study.log").open("a") as file:
        file.write("two\n")
    mirror.close()
    assert elsewhere(store, tmp_path / "there") == {"sweep.json": "{}", "study.log": "one\ntwo\n"}


def test_files_that_were_replaced_or_removed_are_so_in_the_copy(
    store: ObjectStore, folder: Path, tmp_path: Path
) -> None:
    for name in ("position", "left"):
        (folder / name).write_text("123456")
    mirror = started(store, folder)
    (folder / "new").write_text("12")
    (folder / "new").replace(folder / "position")
    (folder / "left").unlink()
    mirror.close()
    there = tmp_path / "there"
    there.mkdir()
    (there / "left").write_text("of an earlier session")
    assert elsewhere(store, there) == {"position": "12"}


def test_a_driver_that_is_killed_at_any_moment_leaves_a_consistent_copy(
    store: ObjectStore, folder: Path, tmp_path: Path
) -> None:
    reached = 0
    for kill in range(3):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(folder), store.uri])
        until = time.monotonic() + 60
        try:
            while len(elsewhere(store, tmp_path / f"at-{time.time_ns()}").get("causes.jsonl", "")) <= reached:
                assert time.monotonic() < until
                assert writer.poll() is None
        finally:
            writer.kill()
            writer.wait()
        found = elsewhere(store, tmp_path / f"after-{kill}")
        causes, effects = (found[f"{name}.jsonl"].splitlines() for name in ("causes", "effects"))
        assert 0 <= len(causes) - len(effects) <= 1, "an effect without its cause"
        assert len(found["causes.jsonl"]) > reached
        reached = len((folder / "causes.jsonl").read_text())


def test_a_driver_that_has_lost_the_sweep_changes_nothing_any_more(
    store: ObjectStore, folder: Path, tmp_path: Path
) -> None:
    (folder / "study.log").write_text("first\n")
    lost = started(store, folder)
    other = tmp_path / "other"
    other.mkdir()
    again = started(store, other)
    (folder / "study.log").write_text("first\nlate\n")
    lost.copy()
    with (other / "study.log").open("a") as file:
        file.write("second\n")
    again.close()
    lost.close()
    assert elsewhere(store, tmp_path / "there") == {"study.log": "first\nsecond\n"}


def test_files_of_this_machine_are_kept_if_nobody_has_continued_the_sweep(
    store: ObjectStore, folder: Path, tmp_path: Path
) -> None:
    (folder / "study.log").write_text("one\n")
    started(store, folder)
    (folder / "study.log").write_text("one\nnot copied\n")  # the driver was killed here
    started(store, folder).close()
    assert elsewhere(store, tmp_path / "there") == {"study.log": "one\nnot copied\n"}


def test_the_number_of_objects_stays_small(store: ObjectStore, folder: Path, tmp_path: Path) -> None:
    mirror = started(store, folder)
    for count in range(100):
        with (folder / "study.log").open("a") as file:
            file.write(f"{count:010}\n")
        mirror.copy()
    mirror.close()
    assert len(store.names()) <= 10
    assert elsewhere(store, tmp_path / "there")["study.log"].splitlines() == [f"{each:010}" for each in range(100)]


def test_a_flipped_bit_that_is_corrected_here_does_not_damage_the_copy(
    store: ObjectStore, folder: Path, tmp_path: Path
) -> None:
    lines = [with_checksum(json.dumps({"step": step}).encode()) + b"\n" for step in range(80)]
    flipped = bytearray(b"".join(lines[:20]))
    flipped[15] ^= 4
    (folder / "study.log").write_bytes(flipped)
    mirror = started(store, folder)
    mend(folder / "study.log")  # as whoever opens it
    for line in lines[20:]:
        with (folder / "study.log").open("ab") as file:
            file.write(line)
        mirror.copy()
    mirror.close()
    assert elsewhere(store, tmp_path / "there") == {"study.log": b"".join(lines).decode()}


def test_a_manifest_that_is_cut_off_does_not_count(store: ObjectStore, folder: Path, tmp_path: Path) -> None:
    assert not has_state(store)
    (folder / "study.log").write_text("one\n")
    mirror = started(store, folder)
    mirror.close()
    (newest,) = [name for name in store.names() if name.endswith(".json")]
    content = store.read(newest)
    assert content is not None
    assert json.loads(content.partition(b"\n")[2])["files"]["study.log"]["size"] == 4
    store.write(newest.replace("000000001", "000000002"), content[:-5])
    assert elsewhere(store, tmp_path / "there") == {"study.log": "one\n"}


class Refusing(ObjectStore):
    """A store that refuses the next object of a kind, as one that answers 503 for a moment."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.refuses = ""

    def write(self, name: str, content: bytes) -> None:
        if self.refuses and self.refuses in name:
            self.refuses = ""
            raise OSError("503: slow down")
        super().write(name, content)


@pytest.mark.parametrize("refused", [".json", "/part-"])
def test_a_change_that_the_store_refused_is_committed_by_the_next_copy_and_leaves_no_other_object(
    folder: Path, tmp_path: Path, refused: str
) -> None:
    store = Refusing(f"file://{tmp_path}/bucket/sweeps/first")
    (folder / "sweep.json").write_text("{}")
    (folder / "study.log").write_text("one\n")
    mirror = started(store, folder)
    with (folder / "study.log").open("a") as file:
        file.write("two\n")
    store.refuses = refused
    with pytest.raises(OSError, match="503"):
        mirror.copy()
    mirror.close()
    assert elsewhere(store, tmp_path / "there") == {"sweep.json": "{}", "study.log": "one\ntwo\n"}
    assert len(store.names()) == 3, "the manifest, and one part of each file"


def test_the_copy_goes_on_after_an_error_of_the_store(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_mirror, "COPY_EVERY_S", 0.01)
    store = Refusing(f"file://{tmp_path}/bucket/sweeps/first")
    mirror = started(store, folder)
    store.refuses = ".json"
    (folder / "study.log").write_text("one\n")
    wait_until(lambda: newer_files(store, ["study.log"], than="")[1] == {"study.log": b"one\n"})
    mirror.close()
