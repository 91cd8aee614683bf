"""Estimators: fitted piece by piece, resumed exactly, with raw rows, folds and every kind of library."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import ray.train
from sklearn import datasets

from sweeps_train import load_model
from sweeps_train.config import EstimatorConfig
from sweeps_train.config.better import Objective
from sweeps_train.estimators import training
from sweeps_train.estimators.construct import estimator_class, goal_of, is_native, make_estimator, unknown_arguments
from sweeps_train.estimators.growth import AtOnce, Boosting, Passes, WarmStart, growth_of
from sweeps_train.estimators.probe import probe_mistakes
from sweeps_train.estimators.training import estimator_function
from sweeps_train.tables.encoding import learn_encoding
from sweeps_train.tables.split import read_split
from sweeps_train.workers.worker_cache import evict

OWN_TREES = """
from sklearn.tree import DecisionTreeClassifier

class Trees(DecisionTreeClassifier):
    def __init__(self, mc=1, class_weight=None, monotonic_cst=None):
        super().__init__(class_weight=class_weight, monotonic_cst=monotonic_cst)
        self.mc = mc
"""


class Stopped(Exception):
    pass


class Worker:
    """Ray Train's calls in this process: reports, their checkpoints, and a stop after some."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.reports = folder, list[dict[str, float]]()
        self.stop_after = math.inf

    def report(self, metrics: dict[str, float], checkpoint: Any, **_: Any) -> None:
        shutil.move(checkpoint.path, self.folder / str(len(self.reports)))
        self.reports.append(metrics)
        if len(self.reports) >= self.stop_after:
            raise Stopped

    def get_checkpoint(self) -> Any:
        return ray.train.Checkpoint(str(self.newest)) if self.reports else None

    @property
    def newest(self) -> Path:
        return self.folder / str(len(self.reports) - 1)


@pytest.fixture
def new_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Worker]:
    """Makes workers, of which the last one gets the calls."""

    def make() -> Worker:
        made = Worker(Path(tempfile.mkdtemp(dir=tmp_path)))
        monkeypatch.setattr(ray.train, "report", made.report)
        monkeypatch.setattr(ray.train, "get_checkpoint", made.get_checkpoint)
        return made

    monkeypatch.setattr(training, "_num_cpus", lambda: 1)
    return make


@pytest.fixture
def worker(new_worker: Callable[[], Worker]) -> Worker:
    return new_worker()


def configured(target: str, *, path: str = "builtin:wine", **task: Any) -> EstimatorConfig:
    arguments = task.pop("arguments", {})
    data = {"kind": "table", "format": "csv", "path": path, "target": task.pop("column", "target")}
    table = {**data, **task.pop("data", {})}
    return EstimatorConfig(  # type: ignore[call-arg]
        task={"kind": "estimator", "_target_": target, "arguments": arguments, **task}, data=table, checkpoint={}
    )


def fit(config: EstimatorConfig, metric: str = "eval/loss", mode: str = "min") -> None:
    estimator_function(config, Objective(metric, mode))()


def interrupt(worker: Worker, config: EstimatorConfig, after: int) -> None:
    """Fit until a report, after which the training may be resumed."""
    worker.stop_after = after
    with pytest.raises(Stopped):
        fit(config)
    worker.stop_after = math.inf


BOOSTING = {
    "xgboost.XGBClassifier": {"n_estimators": 12, "subsample": 0.5, "colsample_bytree": 0.5, "max_depth": 3},
    "lightgbm.LGBMClassifier": {"n_estimators": 12, "subsample": 0.5, "subsample_freq": 1, "num_leaves": 7},
    "sklearn.ensemble.GradientBoostingClassifier": {"n_estimators": 12, "subsample": 0.5},
    "sklearn.ensemble.HistGradientBoostingClassifier": {"max_iter": 12},
    "sklearn.ensemble.RandomForestClassifier": {"n_estimators": 12},
    "sklearn.linear_model.SGDClassifier": {"max_iter": 12, "loss": "log_loss"},
}


@pytest.mark.parametrize(
    "target",
    [pytest.param(each, marks=pytest.mark.slow if "GradientBoosting" in each else ()) for each in BOOSTING],
)
def test_each_piece_is_a_report_and_a_resumed_training_is_the_same_as_an_unbroken_one(
    target: str, new_worker: Callable[[], Worker]
) -> None:
    config = configured(target, arguments=BOOSTING[target], report_every=4)
    unbroken = new_worker().reports
    fit(config)
    worker = new_worker()
    interrupt(worker, config, after=2)
    fit(config)
    resumed = worker.reports
    assert [each["step"] for each in resumed] == [4, 8, 12]
    assert resumed == unbroken
    assert unbroken[-1]["eval/accuracy"] > 0.8
    assert {"eval/loss", "eval/log_loss", "eval/f1", "eval/roc_auc"} <= unbroken[0].keys()


@pytest.mark.parametrize(
    ("target", "name", "value"),
    [
        ("xgboost.XGBClassifier", "learning_rate", 1e-9),
        ("lightgbm.LGBMClassifier", "learning_rate", 1e-9),
        ("sklearn.ensemble.GradientBoostingClassifier", "learning_rate", 1e-9),
        ("sklearn.linear_model.SGDClassifier", "alpha", 7.0),
    ],
)
def test_a_training_that_continues_has_the_arguments_of_the_present_config(
    target: str, name: str, value: float, worker: Worker
) -> None:
    interrupt(worker, configured(target, arguments=BOOSTING[target], report_every=4), after=1)
    fit(configured(target, arguments=BOOSTING[target] | {name: value}, report_every=4))  # as PBT changes it
    assert load_model(worker.newest).estimator.get_params()[name] == value
    if not target.startswith("sklearn."):  # whose rate is that of earlier trees, too
        losses = [each["eval/loss"] for each in worker.reports]
        assert losses == pytest.approx([losses[0]] * 3, rel=1e-3), "what was added has no weight"


def test_an_estimator_that_continues_reads_rows_as_before_though_the_table_has_changed(
    tmp_path: Path, worker: Worker
) -> None:
    file = tmp_path / "cities.csv"
    target = "sklearn.ensemble.RandomForestClassifier"
    config = configured(target, path=str(file), arguments={"n_estimators": 4}, report_every=2)
    for stop_after, cities in ((1, ("Lima", "Oslo", "Rome")), (math.inf, ("Oslo", "Rome", "Zagreb"))):
        lines = [f"{city},{(place + n // 30) % 2}\n" for n in range(40) for place, city in enumerate(cities)]
        file.write_text("city,target\n" + "".join(lines))
        evict("rows")  # as in another process
        worker.stop_after = stop_after
        with contextlib.suppress(Stopped):
            fit(config)
    held_out = read_split(config.data, "classification")[1].to_pandas()
    predicted = load_model(worker.newest).predict(held_out)["prediction"]
    assert worker.reports[-1]["eval/accuracy"] == (predicted == held_out["target"]).mean()


@pytest.mark.parametrize("target", ["xgboost.XGBRegressor", "lightgbm.LGBMRegressor"])
def test_boosting_in_pieces_is_boosting_at_once(target: str, new_worker: Callable[[], Worker]) -> None:
    arguments = {"n_estimators": 20, "learning_rate": 0.1}
    last = []
    for report_every in (1, 20):
        worker = new_worker()
        fit(configured(target, path="builtin:diabetes", arguments=arguments, report_every=report_every))
        last.append(worker.reports[-1])
    pieces, at_once = last
    assert pieces["step"] == at_once["step"] == 20
    assert pieces["eval/rmse"] == pytest.approx(at_once["eval/rmse"], rel=2e-3)
    assert pieces["eval/r2"] > 0.2


def test_rounds_by_another_name_of_the_library_are_as_many(worker: Worker) -> None:
    fit(configured("lightgbm.LGBMClassifier", arguments={"num_iterations": 6}, report_every=3))
    assert [each["step"] for each in worker.reports] == [3, 6]
    assert load_model(worker.newest).estimator.booster_.current_iteration() == 6


@pytest.fixture(scope="module")
def cities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = np.random.default_rng(0)
    city = draw.choice(["Oslo", "Rome", "Lima"], 300)
    frame = pd.DataFrame(
        {"city [code]": city, "size": draw.normal(size=300), "good": np.where(city == "Oslo", "y", "n")}
    )
    frame.loc[::7, "size"] = None
    file = tmp_path_factory.mktemp("cities") / "cities.csv"
    frame.to_csv(file, index=False)
    return file


@pytest.mark.parametrize(
    "target",
    [
        "xgboost.XGBClassifier",
        "lightgbm.LGBMClassifier",
        "sklearn.ensemble.HistGradientBoostingClassifier",
        "sklearn.linear_model.LogisticRegression",
        "sklearn.svm.LinearSVC",
    ],
)
def test_estimators_of_every_kind_take_categories_and_gaps_and_their_models_raw_rows(
    target: str, cities: Path, worker: Worker
) -> None:
    arguments = {"n_estimators": 10} if "xgboost" in target or "lightgbm" in target else {}
    config = configured(target, path=str(cities), column="good", arguments=arguments)
    assert list(probe_mistakes(config)) == []
    fit(config)
    assert worker.reports[-1]["eval/accuracy"] == 1.0
    model = load_model(worker.newest)
    rows = [{"city [code]": "Oslo", "size": None}, {"city [code]": "Paris", "size": 1.0}]
    predicted = model.predict(rows)
    assert predicted["prediction"].tolist() == ["y", "n"]
    assert ("probability_y" in predicted) == ("SVC" not in target)


@pytest.mark.parametrize("task", [{}, {"folds": 3}])
@pytest.mark.parametrize("target", ["sklearn.linear_model.LogisticRegression", "sklearn.svm.LinearSVC"])
def test_a_class_of_interest_has_metrics_of_its_own(target: str, task: Any, cities: Path, worker: Worker) -> None:
    fit(configured(target, path=str(cities), column="good", positive_class="y", **task))
    assert worker.reports[-1]["eval/f1_positive"] == 1.0
    assert {"eval/precision_positive", "eval/recall_positive"} <= worker.reports[-1].keys()


@pytest.mark.parametrize("task", [{}, {"folds": 3}])
@pytest.mark.parametrize("target", ["sklearn.linear_model.LogisticRegression", "lightgbm.LGBMClassifier"])
def test_classes_have_weights_by_their_names_in_the_table(target: str, task: Any, cities: Path, worker: Worker) -> None:
    arguments = {"class_weight": {"n": 1e-6, "y": 1e6}}
    config = configured(target, path=str(cities), column="good", positive_class="y", arguments=arguments, **task)
    assert list(probe_mistakes(config)) == []
    fit(config)
    assert worker.reports[-1]["eval/recall_positive"] == 1.0
    assert worker.reports[-1]["eval/accuracy"] < 1.0
    with pytest.raises(
        ValueError, match=r"task.arguments.class_weight=yes: data.target=good has no such class; use one of n, y"
    ):
        list(
            probe_mistakes(configured(target, path=str(cities), column="good", arguments={"class_weight": {"yes": 2}}))
        )


@pytest.mark.parametrize(
    ("target", "name", "by_position"),
    [
        ("xgboost.XGBRegressor", "monotone_constraints", "(1,0,0)"),
        ("lightgbm.LGBMRegressor", "monotone_constraints", [1, 0, 0]),
        ("lightgbm.LGBMRegressor", "mc", [1, 0, 0]),
        ("sklearn.ensemble.HistGradientBoostingRegressor", "monotonic_cst", [1, 0, 0]),
    ],
)
def test_a_column_is_constrained_by_its_name_wherever_it_is_in_the_table(
    target: str, name: str, by_position: Any, tmp_path: Path, worker: Worker
) -> None:
    draw = np.random.default_rng(0)
    city, size, age = draw.choice(["Oslo", "Rome"], 300), draw.normal(size=300), draw.normal(size=300)
    frame = pd.DataFrame({"city": city, "size [m]": size, "age": age, "price": age - size})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    given = {"path": str(tmp_path / "rows.csv"), "column": "price"}
    config = configured(target, **given, arguments={name: {"size [m]": 1}})
    assert list(probe_mistakes(config)) == []
    fit(config)
    model = load_model(worker.newest)
    rows = [{"city": "Oslo", "size [m]": size, "age": 0.0} for size in (-2.0, -1.0, 0.0, 1.0, 2.0)]
    predicted = model.predict(rows)["prediction"]
    assert predicted.is_monotonic_increasing  # though the price falls with the size
    assert list(probe_mistakes(configured(target, **given, arguments={name: by_position}))) == []
    with pytest.raises(ValueError, match=rf"{name}.siz: is no input of the estimator; use size"):
        list(probe_mistakes(configured(target, **given, arguments={name: {"siz": 1}})))


def test_columns_without_names_are_not_constrained_by_name(cities: Path) -> None:
    forest = configured(
        "sklearn.ensemble.RandomForestClassifier",
        path=str(cities),
        column="good",
        arguments={"monotonic_cst": {"x": 1}},
    )
    with pytest.raises(ValueError, match=r"task.arguments.monotonic_cst: .* gets columns without names here; use XGB"):
        list(probe_mistakes(forest))


def test_an_own_class_gets_its_arguments_as_they_are(
    cities: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_trees.py").write_text(OWN_TREES)
    monkeypatch.syspath_prepend(tmp_path)
    arguments = {"mc": 20, "class_weight": {"a": 1}, "monotonic_cst": {"x": 1}}
    config = configured("own_trees.Trees", path=str(cities), column="good", arguments=arguments)
    encoding = learn_encoding(config.data, "classification", read_split(config.data, "classification")[0])
    made = make_estimator(config.task, 0, 1, encoding)
    assert {name: made.get_params()[name] for name in arguments} == arguments


def test_patience_ends_a_trial_that_no_longer_improves(worker: Worker) -> None:
    config = configured(
        "xgboost.XGBClassifier", arguments={"n_estimators": 400, "learning_rate": 1.0}, report_every=2, patience=3
    )
    fit(config)
    losses = [each["eval/loss"] for each in worker.reports]
    assert len(losses) < 200
    best = losses.index(min(losses))
    assert len(losses) == best + 1 + 3
    fit(config)  # resumed after its end
    assert len(worker.reports) == len(losses)


def test_each_fold_reports_the_mean_so_far_and_the_last_one_keeps_a_model_of_all_rows(worker: Worker) -> None:
    config = configured("sklearn.ensemble.RandomForestClassifier", arguments={"n_estimators": 20}, folds=4)
    interrupt(worker, config, after=2)
    fit(config)
    assert [each["step"] for each in worker.reports] == [1, 2, 3, 4]
    folds = json.loads((worker.newest / training.STATE_FILE).read_text())["folds"]
    means = [np.mean([each["eval/accuracy"] for each in folds[:number]]) for number in range(1, 5)]
    assert [each["eval/accuracy"] for each in worker.reports] == pytest.approx(means)
    rows = datasets.load_wine(as_frame=True)
    truth = [str(rows.target_names[each]) for each in rows.target]
    assert (load_model(worker.newest).predict(rows.data)["prediction"] == truth).all()  # it has seen all of them


def test_a_fold_in_which_a_metric_is_undefined_does_not_count_towards_its_mean(tmp_path: Path, worker: Worker) -> None:
    """One of three groups has a single class, of which there is no ROC AUC."""
    file = tmp_path / "rows.csv"
    groups = ("pure", "one", "two")
    rows = [(group, n, "a" if group == "pure" or n % 3 else "b") for group in groups for n in range(12)]
    file.write_text("group,x,label\n" + "".join(f"{group},{n % 3 + n / 9},{label}\n" for group, n, label in rows))
    target, table = "sklearn.linear_model.LogisticRegression", {"group": "group"}
    fit(configured(target, path=str(file), column="label", folds=3, data=table))
    folds = json.loads((worker.newest / training.STATE_FILE).read_text())["folds"]
    defined = [each["eval/roc_auc"] for each in folds if not math.isnan(each["eval/roc_auc"])]
    assert len(defined) == 2
    assert all(math.isfinite(each["eval/roc_auc"]) for each in worker.reports)
    assert worker.reports[-1]["eval/roc_auc"] == pytest.approx(np.mean(defined))
    assert worker.reports[-1]["eval/accuracy"] == pytest.approx(np.mean([each["eval/accuracy"] for each in folds]))


@pytest.mark.parametrize(
    ("target", "arguments", "growth"),
    [
        ("xgboost.XGBClassifier", {}, Boosting(100, "xgb_model")),
        ("xgboost.XGBClassifier", {"booster": "dart"}, AtOnce()),
        ("xgboost.XGBRFClassifier", {}, AtOnce()),
        ("lightgbm.LGBMRegressor", {"n_estimators": 7}, Boosting(7, "init_model")),
        ("lightgbm.LGBMRegressor", {"boosting": "dart"}, AtOnce()),
        ("lightgbm.LGBMRegressor", {"boost": "rf"}, AtOnce()),
        ("lightgbm.LGBMRegressor", {"data_sample_strategy": "goss"}, AtOnce()),
        ("lightgbm.LGBMRegressor", {"boosting_type": "goss"}, AtOnce()),
        ("sklearn.ensemble.ExtraTreesRegressor", {"n_estimators": 9}, WarmStart(9, "n_estimators")),
        ("sklearn.ensemble.RandomForestClassifier", {"oob_score": True}, WarmStart(100, "n_estimators")),
        ("sklearn.ensemble.BaggingClassifier", {"oob_score": True}, AtOnce()),
        ("sklearn.ensemble.GradientBoostingClassifier", {"subsample": 0.5}, WarmStart(100, "n_estimators")),
        ("sklearn.ensemble.GradientBoostingClassifier", {"n_iter_no_change": 5}, AtOnce()),
        ("sklearn.ensemble.HistGradientBoostingRegressor", {}, WarmStart(100, "max_iter")),
        ("sklearn.neural_network.MLPClassifier", {"max_iter": 5}, Passes(5)),
        ("sklearn.neural_network.MLPClassifier", {"early_stopping": True}, AtOnce()),
        ("sklearn.linear_model.SGDClassifier", {"class_weight": "balanced"}, AtOnce()),
        ("sklearn.linear_model.SGDClassifier", {"learning_rate": "adaptive"}, AtOnce()),
        ("sklearn.linear_model.SGDClassifier", {"average": True}, AtOnce()),
        ("sklearn.linear_model.SGDRegressor", {"tol": 0.01}, AtOnce()),
        ("sklearn.linear_model.SGDRegressor", {"tol": None, "n_iter_no_change": 9, "max_iter": 7}, Passes(7)),
        ("sklearn.neural_network.MLPRegressor", {"n_iter_no_change": 3}, AtOnce()),
        ("sklearn.linear_model.LogisticRegression", {}, AtOnce()),
        ("sklearn.naive_bayes.GaussianNB", {}, AtOnce()),
    ],
)
def test_an_estimator_is_fitted_in_pieces_where_it_can(target: str, arguments: dict[str, Any], growth: Any) -> None:
    task = configured(target, arguments=arguments).task
    assert growth_of(estimator_class(task)(**arguments)) == growth


@pytest.mark.parametrize(
    "arguments",
    [
        {"random_state": 3, "subsample": 0.3, "subsample_freq": 1},
        {"seed": 3, "subsample": 0.3, "subsample_freq": 1},
        {"bagging_seed": 3, "subsample": 0.3, "subsample_freq": 1},
        {"feature_fraction_seed": 3, "colsample_bytree": 0.3},
    ],
)
def test_each_piece_of_lightgbm_draws_other_rows_and_columns(arguments: dict[str, Any]) -> None:
    inputs, targets = datasets.load_diabetes(return_X_y=True)
    first, both = (estimator_class(configured("lightgbm.LGBMRegressor").task)(**arguments) for _ in range(2))
    for each in (first, both):
        each.set_params(learning_rate=1e-9, verbose=-1)  # without progress, equal draws make equal trees
    boosting = Boosting(4, "init_model")
    boosting.grow(first, inputs, targets, 0, 2)
    for done in (0, 2):
        boosting.grow(both, inputs, targets, done, 2)
    assert both.get_params() == {**both.get_params(), **arguments}
    trees = [each["tree_structure"] for each in both.booster_.dump_model()["tree_info"]]
    assert trees[:2] == [each["tree_structure"] for each in first.booster_.dump_model()["tree_info"]]
    splits = [[each[name] for name in ("split_feature", "threshold", "internal_count")] for each in trees]
    assert splits[2:] != splits[:2]


@pytest.mark.parametrize("name", ["linear_model.SGDRegressor", "neural_network.MLPRegressor"])
def test_each_pass_over_the_rows_has_another_order_and_a_resumed_one_has_the_same(name: str) -> None:
    inputs, targets = datasets.load_diabetes(return_X_y=True)
    target = f"sklearn.{name}"
    unbroken, resumed, same_order = (estimator_class(configured(target).task)(random_state=3) for _ in range(3))
    passes = Passes(4)
    passes.grow(unbroken, inputs, targets, 0, 4)
    for done in (0, 2):
        passes.grow(resumed, inputs, targets, done, 2)
    for _ in range(4):
        same_order.partial_fit(inputs, targets)
    assert unbroken.get_params() == same_order.get_params()
    assert (unbroken.predict(inputs) == resumed.predict(inputs)).all()
    assert (unbroken.predict(inputs) != same_order.predict(inputs)).any()


@pytest.mark.parametrize(
    ("target", "goal", "native"),
    [
        ("xgboost.XGBClassifier", "classification", True),
        ("lightgbm.LGBMRegressor", "regression", True),
        ("sklearn.ensemble.HistGradientBoostingRegressor", "regression", True),
        ("sklearn.linear_model.Ridge", "regression", False),
        ("sklearn.svm.SVC", "classification", False),
    ],
)
def test_an_estimator_says_what_it_predicts(target: str, goal: str, native: bool) -> None:
    task = configured(target).task
    assert goal_of(task, estimator_class(task)) == goal
    assert is_native(task, estimator_class(task)) == native


@pytest.mark.parametrize("target", ["collections.OrderedDict", "sklearn.cluster.KMeans", "sklearn.decomposition.PCA"])
def test_what_predicts_neither_classes_nor_numbers_is_refused(target: str) -> None:
    task = configured(target).task
    with pytest.raises(ValueError, match=f"task._target_={target}"):
        goal_of(task, estimator_class(task))


def test_arguments_that_an_estimator_does_not_take_are_found() -> None:
    task = configured("sklearn.svm.SVC", arguments={"c": 1.0, "gamma": 0.1}).task
    unknown, names, taken = unknown_arguments(task, estimator_class(task))
    assert (unknown, taken) == (["c"], "all")
    assert "C" in names


UNKNOWN, IGNORED = "task._target_={} takes no argument '{}'", "has no effect beside LightGBM's own {0}; name it {0}"
KNOWN = {"bagging_fraction": 0.9, "lambda_l2": 0.5}


@pytest.mark.parametrize(
    ("target", "name", "known", "reason"),
    [
        ("xgboost.XGBClassifier", "max_dept", {"eta": 0.1}, UNKNOWN.format("xgboost.XGBClassifier", "max_dept")),
        ("lightgbm.LGBMClassifier", "num_leafs", KNOWN, UNKNOWN.format("lightgbm.LGBMClassifier", "num_leafs")),
        ("lightgbm.LGBMClassifier", "eta", KNOWN, IGNORED.format("learning_rate")),
        ("lightgbm.LGBMClassifier", "max_leaves", KNOWN, IGNORED.format("num_leaves")),
        ("lightgbm.LGBMClassifier", "l1_regularization", KNOWN, IGNORED.format("reg_alpha")),
        ("lightgbm.LGBMClassifier", "min_data_per_leaf", KNOWN, IGNORED.format("min_child_samples")),
    ],
)
def test_arguments_that_a_library_does_not_know_or_ignores_are_found_by_trying(
    target: str, name: str, known: dict[str, float], reason: str
) -> None:
    (mistake,) = probe_mistakes(configured(target, arguments={name: 2, **known}))
    assert mistake == f"task.arguments.{name}=2: {reason}"


@pytest.mark.parametrize(
    ("target", "arguments"),
    [
        ("sklearn.svm.SVC", {"C": -1.0}),
        ("xgboost.XGBClassifier", {"max_depth": -3}),
        ("sklearn.svm.SVC", {"c": 1}),
        ("xgboost.XGBClassifier", {"objective": "binary:logitraw"}),  # without probabilities
    ],
)
def test_values_that_an_estimator_refuses_are_found_by_trying(target: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=next(iter(arguments))):
        list(probe_mistakes(configured(target, path="builtin:breast_cancer", arguments=arguments)))
