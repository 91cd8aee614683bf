"""MLflow runs that a user's function starts itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweeps_train.frameworks.mlflow_runs import OwnRuns
from sweeps_train.workers.process_state import process_state_restored

mlflow = pytest.importorskip("mlflow")


def test_what_a_function_logs_to_mlflow_is_read_and_no_run_stays_open_or_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/elsewhere.db")
    runs = OwnRuns(tmp_path / "trial", 0)
    with process_state_restored(), runs.kept():
        assert os.environ["MLFLOW_REGISTRY_URI"].endswith("elsewhere.db")
        mlflow.set_experiment("mine")
        for step in (1, 2):
            mlflow.log_metric("own", step / 2, step=step)
            mlflow.log_metric("loss", 9.0, step=step)
        mlflow.log_metric("without_a_step", 3.0)
        assert runs.new(2, {"loss"}) == [(2, {"without_a_step": 3.0}), (1, {"own": 0.5}), (2, {"own": 1.0})]
        mlflow.log_metric("own", 1.5, step=3)
    assert runs.new(3, {"loss"}) == [(3, {"own": 1.5})]
    assert mlflow.active_run() is None
    assert os.environ["MLFLOW_TRACKING_URI"].endswith("elsewhere.db")
    assert not (tmp_path / "elsewhere.db").exists()


def test_the_next_trial_of_a_process_has_runs_of_its_own(tmp_path: Path) -> None:
    for name in ("first", "second"):
        runs = OwnRuns(tmp_path / name, 0)
        with process_state_restored(), runs.kept():
            mlflow.set_experiment("mine")
            mlflow.log_metric(name, 1.0, step=1)
        assert runs.new(1, ()) == [(1, {name: 1.0})]


def raises(error: BaseException) -> None:
    mlflow.start_run()
    raise error


def test_a_run_of_a_trial_that_is_stopped_has_not_failed(tmp_path: Path) -> None:
    statuses = []
    for number, error in enumerate((KeyboardInterrupt(), ValueError())):
        runs = OwnRuns(tmp_path / str(number), 0)
        with process_state_restored():
            with pytest.raises(type(error)), runs.kept():
                raises(error)
            statuses.append(mlflow.last_active_run().info.status)
    assert statuses == ["FINISHED", "FAILED"]
