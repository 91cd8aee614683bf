"""Versions that were tried: the table in the docs has a row for each combination, and the ranges are what it shows."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version


@pytest.fixture
def versions(checkout: Path) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(checkout / "requirements"))
        yield importlib.import_module("versions")
        sys.modules.pop("versions")


@pytest.fixture
def rows(versions: Any) -> list[dict[str, str]]:
    found = versions.rows_of(versions.TABLE.read_text(encoding="utf-8"))
    return [dict(zip(versions.COLUMNS, row, strict=True)) for row in found.values()]


def went_well(row: dict[str, str]) -> bool:
    """Whether no test failed, and a whole sweep ended."""
    sweeps = [result for column, result in row.items() if column.startswith("`conf=")]
    results = [row["contracts"], row["runtime"], row["training"], *sweeps]
    return (
        "passed" in row["contracts"]
        and any(each.startswith("ended") for each in sweeps)
        and not any(re.search(r"failed|error|not ended", each) for each in results)
    )


def test_the_table_has_a_row_for_each_combination_and_is_written_as_it_is_read(versions: Any) -> None:
    text = versions.TABLE.read_text(encoding="utf-8")
    found = versions.rows_of(text)
    assert list(found) == [each.name for each in versions.COMBINATIONS]
    assert versions.written(found) == text


@pytest.mark.parametrize("package", ["ray", "torch"])
def test_the_lowest_version_that_is_allowed_has_been_tried(
    checkout: Path, package: str, rows: list[dict[str, str]]
) -> None:
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    parsed = [Requirement(line) for line in project["dependencies"]]
    (allowed,) = (each.specifier for each in parsed if each.name == package)
    (lowest,) = (Version(each.version) for each in allowed if each.operator == ">=")
    tried = [Version(row[package]) for row in rows if went_well(row)]
    assert lowest in tried
    assert all(each in allowed for each in tried)


def test_every_python_that_is_named_has_been_tried(checkout: Path, rows: list[dict[str, str]]) -> None:
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {each.rpartition(" ")[2] for each in project["classifiers"] if re.search(r"Python :: 3\.\d+$", each)}
    assert named == {row["Python"] for row in rows if went_well(row)}


def test_the_result_of_pytest_is_told_in_a_few_words(versions: Any) -> None:
    output = (
        "FAILED tests/a.py::test_b - AssertionError\n= 1 failed, 3 passed, 2 warnings in 4.5s (0:00:04) =\nstatus 1"
    )
    assert versions.summary(output) == "1 failed, 3 passed: test_b"
    assert (
        versions.summary("Traceback ...\nImportError: no such name\nstatus 4") == "ImportError: no such name; status 4"
    )


def test_what_is_pinned_is_not_locked(versions: Any, tmp_path: Path) -> None:
    older = versions.Environment(versions.Combination("older", pins=("ray[tune,train]==2.55.1",)), tmp_path)
    locked = older._locked().splitlines()
    assert not any(line.startswith("ray==") for line in locked)
    assert any(line.startswith("torch==") for line in locked)
    assert any(line.startswith("optuna==") for line in locked)
