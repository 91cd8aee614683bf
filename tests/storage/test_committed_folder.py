"""Folders in an object store that are complete or absent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from s3_server import BUCKET, s3_server
from waiting import wait_until

from sweeps.errors import UserError
from sweeps.runtime.checkpoint_layout import Origin, checkpoint_folder, is_pinned, pin, release, take_over
from sweeps.storage.committed_folder import commit, committed, copy, fetch, is_same, withdraw
from sweeps.storage.object_store import ObjectStore, checked_store
from sweeps_train.checkpoints.checkpoint_metrics import read_metrics
from sweeps_train.checkpoints.integrity import SEAL_FILE, find_damage, seal
from sweeps_train.config.better import Objective

pytestmark = pytest.mark.timeout(180)

LOSS = [Objective("loss", "min")]
COMMIT = """
import sys
from pathlib import Path
from sweeps.storage.committed_folder import commit
from sweeps.storage.object_store import ObjectStore
commit(ObjectStore(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """URI of a bucket in a real S3 server, which the environment names."""
    with s3_server() as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield f"s3://{BUCKET}"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "step-00000020"
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "weights").write_bytes(b"1234" * 1000)
    (folder / "metrics.json").write_text("{}")
    seal(folder)
    return folder


def reseal(folder: Path) -> None:
    (folder / SEAL_FILE).unlink()
    seal(folder)


def test_a_folder_comes_back_from_s3_as_it_was(bucket: str, checkpoint: Path, tmp_path: Path) -> None:
    trial = ObjectStore(f"{bucket}/sweeps/first/trials/0001")
    commit(trial / checkpoint.name, checkpoint)
    assert committed(trial.names()) == [checkpoint.name]
    fetch(trial / checkpoint.name, tmp_path / "there")
    assert find_damage(tmp_path / "there") is None
    assert (tmp_path / "there" / "files" / "weights").read_bytes() == b"1234" * 1000
    withdraw(trial / checkpoint.name)
    assert trial.names() == {}
    with pytest.raises(FileNotFoundError, match="is incomplete"):
        fetch(trial / checkpoint.name, tmp_path / "there")


def test_an_upload_that_is_killed_commits_nothing_and_can_be_repeated(
    bucket: str, checkpoint: Path, tmp_path: Path
) -> None:
    with (checkpoint / "files" / "large").open("wb") as file:
        file.truncate(200 * 2**20)
    reseal(checkpoint)
    trial = ObjectStore(f"{bucket}/sweeps/killed/trials/0001")
    uploader = subprocess.Popen([sys.executable, "-c", COMMIT, (trial / checkpoint.name).uri, str(checkpoint)])
    wait_until(trial.names, every_s=0.01)
    uploader.kill()
    uploader.wait()
    assert trial.names()
    assert committed(trial.names()) == []
    (checkpoint / "files" / "large").unlink()
    reseal(checkpoint)
    commit(trial / checkpoint.name, checkpoint)
    fetch(trial / checkpoint.name, tmp_path / "there")
    assert find_damage(tmp_path / "there") is None


def test_a_folder_is_what_is_committed_if_its_seal_and_sizes_are(checkpoint: Path, tmp_path: Path) -> None:
    trial = ObjectStore(f"file://{tmp_path}/store")
    assert not is_same(trial / checkpoint.name, checkpoint)
    commit(trial / checkpoint.name, checkpoint)
    assert is_same(trial / checkpoint.name, checkpoint)
    (checkpoint / "files" / "weights").write_bytes(b"1234")
    assert not is_same(trial / checkpoint.name, checkpoint), "it is cut off"
    reseal(checkpoint)
    assert not is_same(trial / checkpoint.name, checkpoint), "another one was committed"
    (checkpoint / "metrics.json").unlink()
    assert not is_same(trial / checkpoint.name, checkpoint)


def test_a_file_system_of_fsspec_is_a_store_too(checkpoint: Path, tmp_path: Path) -> None:
    trial = ObjectStore("memory://sweeps/first/trials/0001")
    commit(trial / checkpoint.name, checkpoint)
    copy(trial / checkpoint.name, trial / "pinned" / checkpoint.name)
    assert committed(trial.names()) == [f"pinned/{checkpoint.name}", checkpoint.name]
    withdraw(trial / checkpoint.name)
    fetch(trial / "pinned" / checkpoint.name, tmp_path / "there")
    assert find_damage(tmp_path / "there") is None
    assert trial.folders() == ["pinned"]


class Busy(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Store of fsspec with an error of its own, which is no ``OSError``."""

    protocol = "busy"

    def refuse(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("503 Server Busy")

    def exists(self, *_: Any) -> bool:
        return True

    isfile = exists
    _open = info = find = ls = rm = refuse


def test_an_error_of_a_store_is_an_oserror_also_where_a_file_system_of_fsspec_raises_another(tmp_path: Path) -> None:
    fsspec.register_implementation("busy", Busy, clobber=True)
    store, file = ObjectStore("busy://sweeps/first"), tmp_path / "file"
    file.write_bytes(b"1234")
    requests: list[Callable[[], object]] = [
        *(lambda: store.read("a"), lambda: store.write("a", b""), lambda: store.upload(file, "a")),
        *(lambda: store.download("a", file), lambda: store.copy("a", store), lambda: store.modified("a")),
        *(store.names, store.folders, lambda: store.remove("a"), store.remove_all),
    ]
    for request in requests:
        with pytest.raises(OSError, match="503 Server Busy"):
            request()


def test_a_copy_in_the_store_is_complete_or_absent(bucket: str, checkpoint: Path, tmp_path: Path) -> None:
    trials = ObjectStore(f"{bucket}/sweeps/copied/trials")
    commit(trials / "0001" / checkpoint.name, checkpoint)
    copy(trials / "0001" / checkpoint.name, trials / "0002" / "taken")
    withdraw(trials / "0001" / checkpoint.name)
    fetch(trials / "0002" / "taken", tmp_path / "there")
    assert find_damage(tmp_path / "there") is None
    (trials / "0002" / "taken").remove("metrics.json")
    with pytest.raises(FileNotFoundError):
        copy(trials / "0002" / "taken", trials / "0003" / "half")
    assert committed(trials.names()) == ["0002/taken"]


def test_a_trial_takes_over_a_checkpoint_that_another_one_has_pinned_in_the_store(bucket: str, tmp_path: Path) -> None:
    trials = ObjectStore(f"{bucket}/sweeps/population/trials")
    losses = {("0007", 20): 0.2, ("0007", 40): 0.3, ("0003", 20): 0.1, ("0003", 30): 0.9, ("0003", 40): 5}
    for (trial, step), loss in losses.items():
        folder = tmp_path / f"{trial}-{step}"
        folder.mkdir()
        (folder / "metrics.json").write_text(f'{{"loss": {loss}}}')
        seal(folder)
        commit(trials / trial / f"step-{step:08d}", folder)
    assert not pin(trials, "0007", 0, 60)
    assert pin(trials, "0007", 0, 40)
    assert pin(trials, "0007", 0, 20)
    assert pin(trials, "0007", 0, 20)
    assert not is_pinned(trials, Origin("0007", 40, 1)), "one at a time"
    (trials / "0003" / "step-00000050").write("metrics.json", b'{"loss": 0.01}')  # its upload was interrupted
    take_over(trials, "0003", Origin("0007", 20, 1), LOSS)
    own = checkpoint_folder(trials, "0003", 1) / "step-00000020"
    fetch(own, tmp_path / "taken")
    assert find_damage(tmp_path / "taken") is None
    assert read_metrics(tmp_path / "taken") == {}, "it has not reported them itself"
    release(trials, "0007")
    release(trials, "0007")
    assert committed(trials.names()) == [
        *("0003/lineage-1/step-00000020", "0003/step-00000020", "0003/step-00000040"),
        *("0007/step-00000020", "0007/step-00000040"),
    ], "its own best and newest stay"


@pytest.mark.parametrize("folder", ["my sweeps/größe", "my%20sweeps/gr%C3%B6%C3%9Fe"])
def test_the_folder_of_a_store_may_have_spaces_and_umlauts(bucket: str, folder: str) -> None:
    store = checked_store("output_dir", f"{bucket}/{folder}")
    store.write("first/state", folder.encode())
    assert ObjectStore(f"{bucket}/my sweeps/größe").read("first/state") == folder.encode()
    assert "my sweeps" in ObjectStore(bucket).folders()


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("s3://no-such-bucket/sweeps", r"output_dir=s3://no-such-bucket/sweeps: cannot be used .*check the address"),
        ("nothing://bucket", r"output_dir=nothing://bucket: cannot be used"),
        ("az://bucket", r"output_dir=az://bucket: .*adlfs.*; pip install it here and on all nodes"),
    ],
)
def test_a_store_that_cannot_be_used_is_named(bucket: str, uri: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        checked_store("output_dir", uri)
