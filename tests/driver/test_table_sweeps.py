"""Whole sweeps over tables: estimators that are stopped early, and models whose registered versions take raw rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mlflow
import pytest
from running import Done, run
from sklearn import datasets

import sweeps_train
from sweeps.compat.mlflow import use_tracking_uri
from sweeps.registry.register import register
from sweeps.tracking.reader import load_sweep

pytestmark = pytest.mark.slow

ROWS = datasets.load_breast_cancer(as_frame=True)


def predicted_by_the_registered_model(done: Done) -> Any:
    """Predictions of the best trial's model for all rows, through MLflow."""
    record = load_sweep(done.store, done.document["sweep"])
    best = record.best
    assert best is not None
    registered = register(record, best, "tables", "champion")
    with use_tracking_uri(done.store):
        return mlflow.pyfunc.load_model(registered.uri).predict(ROWS.data)


def accuracy(predicted: Any) -> float:
    truth = [str(ROWS.target_names[each]) for each in ROWS.target]
    return float((predicted["prediction"] == truth).mean())


@pytest.fixture(scope="module")
def boosted(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("boosted")
    return run(folder, "conf=estimator", "search.num_trials=6", "task.arguments.n_estimators=20")


def test_trials_of_an_estimator_report_by_boosting_round_and_are_stopped_early(boosted: Done) -> None:
    document = boosted.document
    assert document["status"] == "finished"
    assert document["counts"]["failed"] == 0
    assert document["counts"]["finished"] >= 1
    assert document["counts"]["pruned"] >= 1
    steps = {trial["state"]: trial["steps"] for trial in document["trials"]}
    assert steps["finished"] == 20
    assert steps["pruned"] < 20
    (run,) = [each for each in boosted.trials() if each.data.tags["sweeps.trial"] == document["best"]["trial"]]
    history = boosted.client.get_metric_history(run.info.run_id, "eval/roc_auc")
    assert [each.step for each in history] == [*range(1, 21)]


@pytest.mark.filterwarnings("ignore")  # mlflow's own while a model is registered
def test_the_registered_estimator_takes_raw_rows(boosted: Done, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert accuracy(predicted_by_the_registered_model(boosted)) > 0.95
    with use_tracking_uri(boosted.store):
        estimator = mlflow.xgboost.load_model("models:/tables@champion")
    assert (type(estimator).__name__, estimator.n_classes_) == ("XGBClassifier", 2)


def test_the_best_checkpoint_of_an_estimator_loads_from_mlflow(boosted: Done) -> None:
    checkpoint = boosted.document["best"]["checkpoint"]
    folder = mlflow.artifacts.download_artifacts(artifact_uri=checkpoint, tracking_uri=boosted.store)
    predicted = sweeps_train.load_model(folder).predict(ROWS.data)
    assert predicted.columns.tolist() == ["prediction", "probability_benign", "probability_malignant"]


@pytest.mark.filterwarnings("ignore")
def test_two_workers_search_a_model_for_a_table_and_the_registered_one_takes_raw_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    done = run(tmp_path, "conf=tabular", "search.num_trials=6")
    assert done.document["status"] == "finished"
    assert done.document["counts"]["failed"] == 0
    assert done.document["counts"]["pruned"] >= 1
    assert accuracy(predicted_by_the_registered_model(done)) > 0.95
