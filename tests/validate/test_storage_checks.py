"""Mistakes in ``output_dir`` as an address are found on the driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from composing import composed, mistakes

from sweeps.config.service import Service
from sweeps.errors import UserError
from sweeps.plan.plan import make_plan
from sweeps.validate.storage_checks import storage_notes


def test_a_key_in_the_address_is_a_mistake_that_is_named_without_it() -> None:
    (line,) = mistakes("output_dir='s3://me:s3cret@bucket/sweeps'")
    assert all(word in line for word in ("output_dir=s3://me:***@bucket", "AWS_ACCESS_KEY_ID", "env")), line
    assert "s3cret" not in line


def test_the_credentials_that_nodes_need_are_noted() -> None:
    given = ["output_dir=s3://bucket/sweeps", "cluster=auto"]
    (note,) = storage_notes(composed("digits", *given).config)
    assert "cluster.env" in note
    assert not [*storage_notes(composed("digits", *given, "cluster.env=['AWS_*']").config)]


def test_a_variable_of_the_shell_in_the_name_of_the_folder_is_noted() -> None:
    (note,) = storage_notes(composed("digits", "output_dir='$HOME/out'").config)
    assert note.startswith("output_dir=$HOME/out: $ is part of the name; for a variable write ${oc.env:NAME}")


def test_a_service_needs_a_folder() -> None:
    with pytest.raises(ValueError, match="output_dir=s3://bucket/sweeps: a service needs a folder on its own machine"):
        Service(output_dir="s3://bucket/sweeps")


def test_a_store_of_an_unknown_kind_is_a_mistake() -> None:
    (line,) = mistakes("tracking.uri=foo://bar")
    assert line.startswith("tracking.uri=foo://bar: is not a tracking store: there is no scheme foo; use http")
    (line,) = mistakes("tracking.uri=mlflow.db")
    assert line.startswith("tracking.uri=mlflow.db: is a folder of files")
    assert line.endswith("as in tracking.uri=sqlite:///mlflow.db")
    for uri in ("sqlite:///:memory:", "sqlite://", "sqlite://mlflow.db"):
        (line,) = mistakes(f"tracking.uri={uri}")
        assert line.startswith(f"tracking.uri={uri}: is not an SQLite file")
    for uri in ("http://127.0.0.1:1", "postgresql+psycopg://me@db/mlflow", "databricks", "databricks://profile"):
        assert mistakes(f"tracking.uri={uri}") == []


def test_a_store_below_a_file_is_a_mistake_and_one_in_a_new_folder_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(UserError, match=r"tracking.uri=sqlite:///file/mlflow.db: \S+/file is not a folder"):
        make_plan(["conf=digits", "tracking.uri=sqlite:///file/mlflow.db"], [], "mine", "")
    make_plan(["conf=digits", "tracking.uri=sqlite:///new/mlflow.db"], [], "mine", "")


def test_an_address_with_one_slash_is_no_folder() -> None:
    (line,) = mistakes("output_dir=s3:/bucket/sweeps")
    assert "write s3://bucket/sweeps for an object store, or ./s3:/bucket/sweeps for the folder" in line
    assert mistakes("output_dir=./s3:/bucket/sweeps") == []
