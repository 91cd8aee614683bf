"""Registering a model leaves no trace in the process that does it."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import ClassVar

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch
from mlflow.models import Model
from recording import one_trial, record_small_sweep
from records import sweep_record, trial_record
from torch import nn
from torch.utils.data import TensorDataset
from training_runs import IMAGES, TRAINING_CONFIG

from sweeps.cli.wanted_model import register_left
from sweeps.constants import TAG_FOLDER
from sweeps.errors import UserError
from sweeps.operations.local import Local
from sweeps.registry import flavours
from sweeps.registry.best_checkpoint import fetch_checkpoint
from sweeps.registry.flavours import class_names_of
from sweeps.registry.register import register
from sweeps.registry.unregistered import Unregistered
from sweeps.tracking.reader import load_sweep
from sweeps_train.checkpoints.integrity import seal
from sweeps_train.config import TableData
from sweeps_train.config.estimator import EstimatorTask
from sweeps_train.estimators.construct import make_estimator
from sweeps_train.estimators.rows import held_out_split


@pytest.mark.parametrize("variable", [None, "sqlite:///other.db"])
def test_mlflows_store_and_its_variable_are_as_they_were(
    uri: str, variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", variable)
    record_small_sweep(uri)
    sweep, before = load_sweep(uri, "digits-1"), mlflow.get_tracking_uri()
    with pytest.raises(UserError, match="checkpoint"):
        register(sweep, sweep.trials[0], "mine", None)
    assert os.environ.get("MLFLOW_TRACKING_URI") == variable
    assert mlflow.get_tracking_uri() == before


def save_estimator(checkpoint: Path, table: Path) -> None:
    """Fit an estimator to a small table, and save it as a trial does."""
    pd.DataFrame({"size": range(40), "good": ["y", "n"] * 20}).to_csv(table, index=False)
    task = EstimatorTask(kind="estimator", _target_="sklearn.linear_model.LogisticRegression")  # type: ignore[call-arg]
    split = held_out_split(TableData(kind="table", format="csv", path=str(table), target="good"), "classification")
    fitted = split.model(estimator := make_estimator(task, 0, 1, split.encoding), native=False)
    estimator.fit(fitted.inputs(split.train.features), split.train.targets)
    checkpoint.mkdir()
    fitted.save(checkpoint)


@pytest.mark.filterwarnings("ignore")  # mlflow's own while a model is saved
def test_a_model_is_logged_in_the_experiment_of_its_trial_though_the_default_one_is_deleted(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    save_estimator(tmp_path / "checkpoint", tmp_path / "rows.csv")
    with one_trial(uri) as recorder:
        recorder.trials.record_checkpoint("0", str(tmp_path / "checkpoint"), "best")
    client, sweep = mlflow.MlflowClient(uri), load_sweep(uri, "digits-1")
    client.delete_experiment("0")

    registered = register(sweep, sweep.trials[0], "mine", None)
    (logged,) = client.search_logged_models([sweep.mlflow.experiment_id])
    assert logged.source_run_id == sweep.trials[0].run_id
    assert logged.params["train.optimizer"] == "adamw"
    assert client.get_model_version("mine", registered.version).source == logged.model_uri
    run = client.get_run(sweep.trials[0].run_id).info
    assert Path(logged.artifact_location).is_relative_to(Path(run.artifact_uri).parents[1])


@pytest.mark.parametrize(
    ("saved", "chosen"),
    [
        ({"step-10": 0.9, "lineage-1/step-30": 0.05, "lineage-2/step-30": 0.4}, "lineage-1/step-30"),
        ({"step-10": 0.1, "lineage-1/step-30": 0.5}, "step-10"),
        ({"step-10": None, "lineage-1/step-20": None, "lineage-1/step-30": None}, "lineage-1/step-30"),
        ({"lineage-1/step-30": 0.5}, "lineage-1/step-30"),
    ],
)
def test_the_model_of_a_trial_that_continued_from_others_is_the_best_or_else_the_newest_of_all_its_checkpoints(
    saved: dict[str, float | None], chosen: str, tmp_path: Path
) -> None:
    trial = tmp_path / "trials" / "0000"
    for name, loss in saved.items():
        (trial / name).mkdir(parents=True)
        (trial / name / "metrics.json").write_text("null" if loss is None else f'{{"eval/loss": {loss}}}')
        seal(trial / name)
    sweep = sweep_record(tags={TAG_FOLDER: str(tmp_path)})
    assert fetch_checkpoint(sweep, trial_record(0), tmp_path / "there") == trial / chosen


def test_a_checkpoint_in_an_object_store_that_is_not_recorded_is_not_said_to_be_missing_there() -> None:
    sweep = sweep_record(tags={TAG_FOLDER: "s3://bucket/sweeps/s"})
    with pytest.raises(UserError, match=r"no checkpoint in MLflow; .*checkpoints=copy.* in s3://bucket/sweeps/s$"):
        fetch_checkpoint(sweep, trial_record(0), Path("there"))


class Named(nn.Linear):
    """A user's own model that names its classes."""

    classes = ("cat", "dog")

    def __init__(self) -> None:
        super().__init__(3, 2)


class Animals(TensorDataset):
    """A user's own data set that names its classes, as torchvision's do."""

    classes: ClassVar = ["ant", "bee"]


def animals() -> tuple[Animals, Animals]:
    images, labels = torch.zeros(4, 1, 2, 2), torch.tensor([0, 1, 0, 1])
    return Animals(images, labels), Animals(images, labels)


@pytest.mark.parametrize(
    ("model", "data", "outputs", "names"),
    [
        (nn.Identity(), {"kind": "digits"}, 10, tuple("0123456789")),
        (nn.Identity(), {"kind": "digits"}, 7, ()),  # another data set's model
        (Named(), {"kind": "digits"}, 2, ("cat", "dog")),
        (nn.Identity(), {"kind": "custom", "_target_": f"{__name__}.animals"}, 2, ("ant", "bee")),
        (nn.Identity(), {"kind": "custom", "_target_": "nowhere.data"}, 2, ()),
    ],
)
def test_classes_are_named_by_the_model_or_its_data(
    model: nn.Module, data: dict[str, object], outputs: int, names: tuple[str, ...]
) -> None:
    config = TRAINING_CONFIG.validate_python({**IMAGES, "data": data})
    assert class_names_of(config, model, outputs) == names


def test_the_packages_of_a_model_are_ones_that_pip_finds_on_its_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flavours, "version", lambda name: "2.6.0+cu126")  # as of torch's own index
    assert flavours._pinned("torch") == ["mlflow==2.6.0", "torch==2.6.0"]


@pytest.mark.parametrize("files", [["own_net.py"], ["own_nets/__init__.py", "own_nets/net.py"], ["own_space/net.py"]])
def test_the_code_of_a_users_own_model_goes_with_it(
    files: list[str], working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in files:
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).write_text("class Net: ...\n")
    linked = working_folder.with_name("linked")  # the same folder twice, which MLflow would copy to one place
    linked.symlink_to(working_folder)
    monkeypatch.setattr(sys, "path", [str(working_folder), str(linked), *sys.path])
    importlib.invalidate_caches()
    model = {"kind": "custom", "_target_": f"{Path(files[-1]).with_suffix('').as_posix().replace('/', '.')}.Net"}
    config = TRAINING_CONFIG.validate_python({**IMAGES, "model": model})
    assert flavours._own_code(config) == [str(working_folder / files[0].partition("/")[0])]


@pytest.mark.parametrize("exports", [True, False])
@pytest.mark.parametrize("model", [Named(), nn.Linear(3, 2)], ids=["named", "without names"])
@pytest.mark.filterwarnings("ignore")  # mlflow's and torch's own while a model is exported
def test_pyfunc_returns_the_names_of_the_classes_where_there_are_names(
    model: nn.Module, exports: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flavours, "load_model", lambda folder: model)
    monkeypatch.setattr(flavours, "_example", lambda config, folder: torch.rand(2, 3))
    monkeypatch.setattr(flavours, "_exports", lambda model, example: exports)
    flavour = flavours._image(TRAINING_CONFIG.validate_python(IMAGES), tmp_path)
    saved = Model(metadata=flavour.metadata)
    flavour.module.save_model(path=str(tmp_path / "model"), mlflow_model=saved, **flavour.arguments)

    inputs = np.random.default_rng(0).random((4, 3), dtype=np.float32)
    predicted = mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(inputs)
    assert np.asarray(predicted) == pytest.approx(model(torch.from_numpy(inputs)).detach().numpy(), abs=1e-6)
    if isinstance(model, Named):
        assert [*predicted.columns] == ["cat", "dog"]
        assert {*predicted.idxmax(axis="columns")} <= {"cat", "dog"}
    else:
        assert isinstance(predicted, np.ndarray)


def test_a_person_who_interrupts_the_registration_is_told_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Local, "register", interrupted)
    tags = Unregistered("reader", "champion", merged=False).as_tag()
    with pytest.raises(KeyboardInterrupt):
        register_left(sweep_record(sweep="again", front=[trial_record()], tags=tags))
    said = "again has finished, but its model is not registered; `python -m sweeps resume again` registers it"
    assert said in capsys.readouterr().err
