"""A tracking server takes and shows the same as a database; one of them serves all tests of this file."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recording import CONFIG, artifact_files, history, one_trial, record_small_sweep
from waiting import wait_until
from web_server import mlflow_listening

from sweeps.cli import app
from sweeps.constants import CONFIG_ARTIFACT
from sweeps.driver.reproduce import Reproduction, compare, is_reproduced
from sweeps.errors import TrackingUnreachable
from sweeps.registry.best_checkpoint import fetch_checkpoint
from sweeps.tracking import artifact_uploader
from sweeps.tracking.artifacts import list_names, read_text
from sweeps.tracking.mlflow_pages import experiment_page, trials_page
from sweeps.tracking.reader import load_sweep


@pytest.fixture(scope="module")
def server_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def server_uri(server_folder: Path) -> Iterator[str]:
    with mlflow_listening(server_folder) as address:
        yield address


@pytest.fixture(params=["database", "server"])
def store(request: pytest.FixtureRequest, uri: str) -> str:
    return uri if request.param == "database" else str(request.getfixturevalue("server_uri"))


def test_a_server_shows_the_same_as_its_database_and_ui_prints_the_pages(
    server_uri: str, server_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record_small_sweep(server_uri)
    by_server = load_sweep(server_uri, "digits-1")
    by_sql = load_sweep(f"sqlite:///{server_folder}/mlflow.db", "digits-1")
    assert by_server.trials == by_sql.trials
    assert by_server.tags == by_sql.tags
    assert by_server.as_json() | {"mlflow": None} == by_sql.as_json() | {"mlflow": None}

    number = by_server.mlflow.experiment_id
    which = number, "digits-1", "eval/loss", "min"
    for arguments in (["ui"], ["ui", "digits-1"]):
        app.main([*arguments, f"--tracking-uri={server_uri}"], standalone_mode=False)
        printed = capsys.readouterr().err
        assert f"digits-1, trials: {server_uri}/{trials_page(*which)}\n" in printed
        assert f"{server_uri}/{trials_page(*which, charts=True)}\n" in printed
        assert f"{server_uri}/{experiment_page(number)}\n" in printed


def test_values_that_are_no_numbers_stay_visible(store: str) -> None:
    with one_trial(store, "odd") as recorder:
        for step, value in enumerate([math.nan, math.inf, -math.inf]):
            recorder.trials.log("0", step, {"loss": value, "eval/loss": math.nan})
        recorder.trials.end("0", "finished", 3, 1)
    sweep = load_sweep(store, "odd")
    values = [value for _, value in history(store, sweep.trials[0].run_id, "loss")]
    assert math.isnan(values[0])
    assert values[1:] == [sys.float_info.max, -sys.float_info.max]
    assert sweep.as_json()["trials"][0]["value"] is None
    no_plan: Any = None
    of_odd = Reproduction(sweep, None, no_plan, None)
    assert is_reproduced(compare(of_odd, sweep))
    with one_trial(store, "even") as recorder:
        for step, value in enumerate([math.nan, 0.5]):
            recorder.trials.log("0", step, {"eval/loss": value})
        recorder.trials.end("0", "finished", 2, 1)
    (differs,) = compare(of_odd, load_sweep(store, "even"))
    assert (differs.steps, (differs.first_difference or ())[0], differs.equal) == (2, 1, False)


def test_a_newer_checkpoint_replaces_the_older_whole(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_uploader, "UPLOAD_AFTER_S", 0.1)

    def checkpoint(name: str, *files: str) -> str:
        for file in files:
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{name}/{file}")
        return str(tmp_path / name)

    with one_trial(store, "replaced") as recorder:
        recorder.trials.record_checkpoint("0", checkpoint("one", "model.bin", "sub/old.bin", "only_old.bin"), "best")
        wait_until(lambda: any(trial.checkpoint for trial in load_sweep(store, "replaced").trials), 30)
        recorder.trials.record_checkpoint("0", checkpoint("two", "model.bin", "sub/new.bin"), "best")
        recorder.trials.record_checkpoint("0", checkpoint("three", "model.bin"), "last")
    trial = load_sweep(store, "replaced").trials[0]
    assert trial.checkpoint == f"runs:/{trial.run_id}/checkpoints/best"
    files = artifact_files(store, trial.run_id, "checkpoints", tmp_path / "out")
    assert files == {
        "best/model.bin": "two/model.bin",
        "best/sub/new.bin": "two/sub/new.bin",
        "last/model.bin": "three/model.bin",
    }
    fetched = fetch_checkpoint(load_sweep(store, "replaced"), trial, tmp_path / "fetched")
    assert (fetched / "model.bin").read_text() == "two/model.bin"
    assert (fetched / "sub" / "new.bin").read_text() == "two/sub/new.bin"


def test_an_artifact_that_can_never_be_read_counts_as_missing(uri: str, tmp_path: Path) -> None:
    """As one of another user, or a link that leads out of the folder: a night would wait for it for ever."""
    record_small_sweep(uri, "digits-unreadable")
    run = load_sweep(uri, "digits-unreadable").mlflow.run_id
    (config,) = tmp_path.rglob(f"{run}/artifacts/{CONFIG_ARTIFACT}")
    config.rename(tmp_path / "elsewhere")
    config.symlink_to(tmp_path / "elsewhere")
    assert CONFIG_ARTIFACT in list_names(uri, run, "")
    assert read_text(uri, run, CONFIG_ARTIFACT) is None


def test_artifacts_that_the_server_cannot_reach_at_the_moment_are_not_taken_for_missing_ones(
    server_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a night would go without its warm start, and a page would keep its figures without the search space."""
    from mlflow.server import artifact_router, handlers

    record_small_sweep(server_uri, "digits-away")
    run = load_sweep(server_uri, "digits-away").mlflow.run_id
    assert read_text(server_uri, run, CONFIG_ARTIFACT) == CONFIG
    assert (read_text(server_uri, run, "none.yaml"), list_names(server_uri, run, "none")) == (None, [])

    def away() -> None:
        raise OSError("no route to the bucket")

    with monkeypatch.context() as lists_only:
        lists_only.setattr(artifact_router, "_get_artifact_repo", away)
        with pytest.raises(TrackingUnreachable, match="does not answer"):
            read_text(server_uri, run, CONFIG_ARTIFACT)
    monkeypatch.setattr(handlers, "_get_artifact_repo_mlflow_artifacts", away)
    with pytest.raises(TrackingUnreachable, match="does not answer"):
        read_text(server_uri, run, CONFIG_ARTIFACT)
    with pytest.raises(TrackingUnreachable, match="does not answer"):
        list_names(server_uri, run, "logs")
