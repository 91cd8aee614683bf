"""Sweeps are recorded in, and read from, folders of any name."""

from __future__ import annotations

from pathlib import Path

import pytest
from recording import CONFIG, record_small_sweep

from sweeps.constants import CONFIG_ARTIFACT
from sweeps.tracking.artifacts import read_text
from sweeps.tracking.reader import list_sweeps, load_sweep
from sweeps.tracking.uris import absolute, decodes_paths, sqlite_path, sqlite_uri

NAMES = ["My%20Project", "50%", "Über 100% (neu)", "a#b", "a=b,c", "it's"]


@pytest.mark.parametrize("name", [*NAMES, *(["a?b", "50%?%25"] if decodes_paths() else [])])
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
