"""Training on tables: metrics of all rows over several workers, the user's own model, and models that take raw rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import datasets
from sklearn.metrics import log_loss, roc_auc_score
from torch import nn
from training_runs import Recorder, configured, on_two_workers, run

from sweeps_train import load_model
from sweeps_train.data.table_data import table_samples
from sweeps_train.tables.metrics import POSITIVE_METRICS
from sweeps_train.workers.worker_cache import evict

CLASSES: dict[str, Any] = {
    "task": {"kind": "classification"},
    "model": {"kind": "mlp", "width": 8},
    "data": {"kind": "table", "format": "csv", "path": "builtin:wine", "target": "target", "eval_fraction": 0.17},
    "train": {"max_steps": 12, "global_batch_size": 32, "lr": 1e-2, "eval_every": 6, "log_every": 6},
    "strategy": {"kind": "ddp"},
    "checkpoint": {},
}
NUMBERS = {
    **CLASSES,
    "task": {"kind": "regression", "loss": "huber"},
    "data": {**CLASSES["data"], "path": "builtin:diabetes", "eval_fraction": 0.1},
}
CONFIGS = {
    "classes": configured(CLASSES),
    "balanced": configured(CLASSES, task={"class_weight": "balanced"}),
    "class of interest": configured(CLASSES, task={"positive_class": "class_1"}),
    "numbers": configured(NUMBERS),
    "numbers, fsdp": configured(NUMBERS, strategy={"kind": "fsdp"}),
}


def scenario() -> dict[str, Recorder]:
    return {name: run(config, Path(name)) for name, config in CONFIGS.items()}


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Recorder]]:
    folder = tmp_path_factory.mktemp("two")
    return folder, on_two_workers(scenario, folder)[0]


@pytest.mark.parametrize("name", CONFIGS)
def test_two_workers_report_the_metrics_of_one_on_rows_that_do_not_divide(
    name: str, two_workers: tuple[Path, dict[str, Recorder]]
) -> None:
    config = CONFIGS[name]
    _, _, held_out = table_samples(config.data, config.task.kind)  # type: ignore[arg-type, union-attr]
    assert len(held_out) % 2 == 1
    alone, together = run(config).final, two_workers[1][name].final
    known = {*config.task.metrics, *(POSITIVE_METRICS if name == "class of interest" else ())}
    assert {key for key in alone if key.startswith("eval/")} == {key for key in known if key.startswith("eval/")}
    for key in [key for key in alone if key.startswith("eval/")]:
        assert together[key] == pytest.approx(alone[key], rel=1e-3), key


def test_the_metrics_of_two_workers_are_those_of_the_saved_model_on_the_whole_held_out_file(
    two_workers: tuple[Path, dict[str, Recorder]],
) -> None:
    folder, recorders = two_workers
    from sweeps_train.tables.split import read_split

    config = CONFIGS["classes"]
    held_out = read_split(config.data, "classification")[1].to_pandas()  # type: ignore[arg-type]
    predicted = load_model(folder / "classes" / "step-00000012").predict(held_out)  # type: ignore[operator]
    scores = predicted[[name for name in predicted if name.startswith("probability_")]].to_numpy()
    final = recorders["classes"].final
    assert final["eval/log_loss"] == pytest.approx(log_loss(held_out["target"], scores), rel=1e-4)
    assert final["eval/roc_auc"] == pytest.approx(roc_auc_score(held_out["target"], scores, multi_class="ovr"))
    assert final["eval/accuracy"] == (predicted["prediction"] == held_out["target"]).mean()


def test_a_training_that_continues_reads_rows_as_its_model_does_though_the_table_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "cities.csv"
    encodings = []
    for steps, cities in ((2, ("Lima", "Oslo", "Rome")), (4, ("Oslo", "Rome", "Zagreb"))):
        file.write_text("city,x,target\n" + "".join(f"{city},{n},{n % 2}\n" for n in range(40) for city in cities))
        evict("table")  # as in another process
        run(configured(CLASSES, data={"path": str(file)}, train={"max_steps": steps}), tmp_path / "run")
        encodings.append(load_model(tmp_path / "run" / f"step-{steps:08}").encoding)  # type: ignore[union-attr]
    assert encodings[0].categories[0].values == ["Lima", "Oslo", "Rome"]
    assert encodings[0] == encodings[1]


def test_a_training_that_was_stopped_goes_on_exactly(tmp_path: Path) -> None:
    config = configured(CLASSES, model={"dropout": 0.2})
    unbroken = run(config, tmp_path / "unbroken").final
    run(config, tmp_path / "broken", stop_when_asked=2)
    resumed = run(config, tmp_path / "broken").final
    assert resumed["eval/log_loss"] == unbroken["eval/log_loss"]


def test_a_regression_learns_in_the_units_of_its_target(tmp_path: Path) -> None:
    config = configured(NUMBERS, task={"loss": "squared"}, train={"max_steps": 60, "eval_every": 60})
    final = run(config, tmp_path).final
    assert final["eval/r2"] > 0.3
    assert 30 < final["eval/mae"] < 60
    rows = datasets.load_diabetes(as_frame=True).data.head(5)
    predicted = load_model(tmp_path / "step-00000060").predict(rows)  # type: ignore[operator]
    assert predicted.columns.tolist() == ["prediction"]
    assert predicted["prediction"].between(25, 346).all()


class OwnModel(nn.Module):
    """A user's own model, which asks for some of the sizes."""

    def __init__(self, width: int, num_numbers: int, num_outputs: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(num_numbers, width), nn.Tanh(), nn.Linear(width, num_outputs))

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        assert categories.shape == (len(numbers), 0)
        outputs: torch.Tensor = self.layers(numbers)
        return outputs


def test_a_users_own_model_gets_the_sizes_that_it_asks_for(tmp_path: Path) -> None:
    config = {**CLASSES, "model": {"kind": "custom", "_target_": f"{__name__}.OwnModel", "arguments": {"width": 7}}}
    final = run(configured(config), tmp_path).final
    assert final["eval/accuracy"] > 0.5
    rows = datasets.load_wine(as_frame=True).data
    assert len(load_model(tmp_path / "step-00000012").predict(rows)) == len(rows)  # type: ignore[operator]


def test_categories_and_gaps_are_learned_and_raw_rows_predicted(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    city = draw.choice(["Oslo", "Rome", "Lima"], 300)
    frame = pd.DataFrame({"city": city, "noise": draw.normal(size=300), "good": city == "Oslo"})
    frame.loc[::7, "noise"] = None
    frame.to_csv(tmp_path / "cities.csv")
    config = configured(CLASSES, data={"path": str(tmp_path / "cities.csv"), "target": "good"}, train={"max_steps": 40})
    assert run(config, tmp_path).final["eval/accuracy"] == 1.0
    model: Any = load_model(tmp_path / "step-00000040")
    predicted = model.predict([{"city": "Oslo", "noise": None}, {"city": "Paris", "noise": 1}])
    assert predicted["prediction"][0]
    assert predicted["probability_True"][1] != predicted["probability_True"][0]


def test_an_unknown_category_adds_nothing_where_no_training_row_has_one(tmp_path: Path) -> None:
    city = ["Oslo", "Rome", "Lima"] * 40
    pd.DataFrame({"city": city, "good": [each == "Oslo" for each in city]}).to_csv(tmp_path / "cities.csv", index=False)
    data = {"path": str(tmp_path / "cities.csv"), "target": "good"}
    run(configured({**CLASSES, "model": {"kind": "mlp", "layers": 0}}, data=data), tmp_path)
    loaded: Any = load_model(tmp_path / "step-00000012")
    predicted = loaded.predict([{"city": "Paris"}])
    assert [predicted["probability_False"][0], predicted["probability_True"][0]] == pytest.approx(
        loaded.model.output.bias.softmax(0).tolist()
    )
