"""A new store is made in a folder of any name, by several processes at the same moment, and as a copy of an empty one,
equal to the one that MLflow makes."""

from __future__ import annotations

import multiprocessing
import sqlite3
from contextlib import closing
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient
from recording import CONFIG, record_small_sweep

from sweeps.constants import CONFIG_ARTIFACT
from sweeps.errors import TrackingUnreachable
from sweeps.storage.location import empty_store_copy
from sweeps.tracking.artifacts import read_text
from sweeps.tracking.client import connect
from sweeps.tracking.reader import list_sweeps, load_sweep
from sweeps.tracking.uris import absolute, decodes_paths, sqlite_path, sqlite_uri

NAMES = ["My%20Project", "50%", "Über 100% (neu)", "a#b", "a=b,c", "it's"]


ALL_AT_ONCE = "Über 100% (neu) it's My%20Project a#b a=b,c"
"""A record takes long."""


@pytest.mark.parametrize("name", [ALL_AT_ONCE, *(["50%?%25"] if decodes_paths() else [])])
def test_a_sweep_is_recorded_in_a_folder_of_any_name_and_nothing_beside_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "folders" / name
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    record_small_sweep("sqlite:///mlflow.db")
    assert sorted(path.name for path in Path().iterdir()) == ["mlflow.db", "mlruns", "outputs"]
    assert [path.name for path in here.parent.iterdir()] == [name]
    monkeypatch.chdir("/")
    uri = sqlite_uri(here / "mlflow.db")
    assert [sweep.sweep for sweep in list_sweeps(uri)] == ["digits-1"]
    record = load_sweep(uri, "digits-1")
    assert (read_text(uri, record.trials[0].run_id, CONFIG_ARTIFACT) or "").strip() == CONFIG.strip()


@pytest.mark.parametrize("name", NAMES)
def test_the_uri_of_a_file_leads_to_the_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name / "mlflow.db"
    assert sqlite_path(sqlite_uri(path)) == path
    assert absolute(sqlite_uri(path)) == sqlite_uri(path)


def test_processes_that_connect_to_a_new_store_at_the_same_moment_all_find_its_tables(tmp_path: Path) -> None:
    import mlflow.store.tracking.sqlalchemy_store  # noqa: F401 - before the fork, so that they meet

    context = multiprocessing.get_context("fork")
    start, answers = context.Barrier(3), context.Queue()

    def one() -> None:
        start.wait()
        try:
            connect(f"sqlite:///{tmp_path}/mlflow.db")
            answers.put("connected")
        except TrackingUnreachable as error:
            answers.put(str(error))

    processes = [context.Process(target=one) for _ in range(3)]
    for process in processes:
        process.start()
    assert [answers.get(timeout=60) for _ in processes] == ["connected"] * 3
    for process in processes:
        process.join()
    assert [path.name for path in tmp_path.glob("*.db*")] == ["mlflow.db"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, without the copy of an empty store."""
    monkeypatch.setenv("SWEEPS_CACHE", str(tmp_path / "cache"))


def content(path: Path) -> list[str]:
    """All tables and rows of a store, with its own folder and times left out."""
    with closing(sqlite3.connect(path)) as store:
        lines = [line.replace(str(path.parent), "FOLDER") for line in store.iterdump()]
    return sorted(line for line in lines if not line.startswith('INSERT INTO "experiments"'))


def experiments(path: Path) -> list[tuple[str, str, str]]:
    found = MlflowClient(f"sqlite:///{path}").search_experiments()
    places = [each.artifact_location.replace(str(path.parent), "FOLDER") for each in found]
    return [(each.experiment_id, each.name, place) for each, place in zip(found, places, strict=True)]


@pytest.mark.usefixtures("cache")
def test_the_second_store_on_a_machine_is_like_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = empty_store_copy(mlflow.__version__)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    connect(f"sqlite:///{tmp_path}/first/mlflow.db")
    assert kept.exists()
    monkeypatch.setattr("mlflow.store.db.utils._initialize_tables", None)  # the migrations are not run
    connect(f"sqlite:///{tmp_path}/second/mlflow.db")
    first, second = tmp_path / "first/mlflow.db", tmp_path / "second/mlflow.db"
    assert len(content(first)) > 50
    assert content(second) == content(first)
    assert experiments(second) == experiments(first)
    assert [each.name for each in (tmp_path / "second").iterdir()] == ["mlflow.db"]


@pytest.mark.usefixtures("cache")
def test_no_copy_is_kept_of_a_store_that_exists_or_where_none_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with monkeypatch.context() as patch:
        patch.setenv("SWEEPS_CACHE", str(tmp_path / "file"))
        client = connect(f"sqlite:///{tmp_path}/mlflow.db")
    assert [each.name for each in client.search_experiments()] == ["Default"]  # MLflow has made it by itself
    client.create_run("0")
    connect(f"sqlite:///{tmp_path}/mlflow.db")
    assert not empty_store_copy(mlflow.__version__).exists()
