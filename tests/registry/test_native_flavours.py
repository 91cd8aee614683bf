"""A registered estimator takes raw rows by pyfunc, and loads as it was fitted by the flavour of its own library."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.models import Model
from sklearn.linear_model import LogisticRegression

from sweeps.registry.flavours import flavour_of
from sweeps_train.config import TableData
from sweeps_train.config.estimator import EstimatorTask
from sweeps_train.estimators.construct import estimator_class, is_native, make_estimator
from sweeps_train.estimators.model import EstimatorModel
from sweeps_train.estimators.rows import held_out_split


class OwnRegression(LogisticRegression):
    """A user's own estimator."""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    city = draw.choice(["Oslo", "Rome", "Lima"], 120)
    frame = pd.DataFrame({"city": city, "size": draw.normal(size=120), "good": np.where(city == "Oslo", "y", "n")})
    frame.loc[::7, "size"] = None
    frame.to_csv(tmp_path / "cities.csv", index=False)
    return tmp_path / "cities.csv"


@pytest.mark.parametrize(
    ("target", "library"),
    [
        pytest.param("xgboost.XGBClassifier", "xgboost", marks=pytest.mark.slow),  # half of the time is its import
        ("lightgbm.LGBMClassifier", "lightgbm"),
        (f"{__name__}.OwnRegression", "sklearn"),
    ],
)
@pytest.mark.filterwarnings("ignore")  # mlflow's own while a model is saved
def test_the_estimator_itself_loads_by_the_flavour_of_its_library(
    target: str, library: str, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    task = EstimatorTask(kind="estimator", _target_=target)  # type: ignore[call-arg]
    split = held_out_split(TableData(kind="table", format="csv", path=str(table), target="good"), "classification")
    estimator = make_estimator(task, 0, 1, split.encoding)
    fitted = split.model(estimator, native=is_native(task, estimator_class(task)))
    estimator.fit(fitted.inputs(split.train.features), split.train.targets)
    (tmp_path / "checkpoint").mkdir()
    fitted.save(tmp_path / "checkpoint")

    flavour = flavour_of(tmp_path / "checkpoint", tmp_path, merged=False)
    saved, folder = Model(), tmp_path / "model"
    flavour.module.save_model(path=str(folder), mlflow_model=saved, **flavour.arguments)
    assert {*saved.flavors} == {"python_function", library}

    rows = pd.read_csv(table).drop(columns="good")
    by_rows = mlflow.pyfunc.load_model(str(folder))
    predicted = by_rows.predict(rows)
    model: EstimatorModel = by_rows.unwrap_python_model().model
    itself = importlib.import_module(f"mlflow.{library}").load_model(str(folder))
    assert type(itself) is type(estimator)
    scores = itself.predict_proba(model.encode(rows))
    assert scores == pytest.approx(predicted[["probability_n", "probability_y"]].to_numpy())
    assert predicted["prediction"].tolist() == pd.read_csv(table)["good"].tolist()
