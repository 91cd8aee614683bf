"""A new store is a copy of an empty one, and equal to the one that MLflow makes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient

from sweeps.storage.location import empty_store_copy
from sweeps.tracking.client import connect


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
