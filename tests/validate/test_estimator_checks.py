"""Mistakes in an estimator, its arguments and its table are found before a worker starts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from composing import planned

from sweeps.config import SweepConfig
from sweeps.config.objectives import Objectives
from sweeps.errors import ConfigError
from sweeps.plan.plan import Plan
from sweeps.plan.preflight import Preflight, configs_to_check

OTHER = ["~task.arguments", "~space"]
"""Another estimator has none of the arguments of the shipped one."""


def plan(*tokens: str) -> Plan:
    return planned("conf=estimator", *tokens)


@pytest.fixture(autouse=True)
def files(working_folder: Path) -> None:
    Path("rows.csv").write_text("size,label,price\n" + "".join(f"{n},{'ab'[n % 2]},{n / 10}\n" for n in range(30)))


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["task._target_=xgboost.XGBClasifier"], "has no 'XGBClasifier'; did you mean XGBClassifier"),
        (["task._target_=catboost.CatBoostClassifier"], "there is no module 'catboost'"),
        (
            ["task._target_=sklearn.cluster.KMeans", *OTHER],
            "is a clusterer, whose result no target column can judge; use a Ray Train function",
        ),
        (["task._target_=sklearn.datasets.load_wine", *OTHER], "is not an estimator: task=estimator needs a class"),
        (["task._target_=sklearn.svm.SVC", *OTHER, "+task.arguments.c=2"], "takes no argument 'c'; did you mean C?"),
        (["task._target_=sklearn.svm.SVC", *OTHER, "+task.arguments.q=2"], "takes no argument 'q'; it takes C, kernel"),
        (["task.arguments.early_stopping_rounds=5"], "cannot be set in a trial: .* task.patience ends one"),
        (
            ["task._target_=lightgbm.LGBMClassifier"],
            r"space.task.arguments.subsample: .* without subsample_freq; set \+task.arguments.subsample_freq=1",
        ),
        (
            ["task._target_=lightgbm.LGBMClassifier", *OTHER, "task.arguments.subsample=interval(0.5, 1)"],
            "space.task.arguments.subsample: LightGBM trains on all rows",
        ),
        (["data.path=rows.csv", "data.target=labl"], "data.target=labl: .* did you mean label"),
        (["data.path=rows.csv", "data.target=price"], "data.target=price: has numbers with decimals"),
        (
            ["data.path=rows.csv", "data.target=label", "task._target_=xgboost.XGBRegressor"],
            "data.target=label: is of type string, and a regression needs numbers",
        ),
        (
            ["data.path=rows.csv", "data.target=price", "task._target_=xgboost.XGBRegressor", "task.positive_class=1"],
            "task.positive_class=1: numbers are predicted, not classes; remove it",
        ),
        (
            ["data.imputation=choice(mean, median)"],
            "space.data.imputation: .* gets numbers as they are in the table, so it has no effect; remove it",
        ),
        (
            ["task._target_=sklearn.linear_model.SGDClassifier", *OTHER, "task.arguments.loss=choice(log_loss, hinge)"],
            "search.metric=eval/loss: is the error rate with task.arguments.loss=hinge, where .* use search.metric=",
        ),
        (
            ["task.folds=3", "data.eval_fraction=choice(0.1, 0.2)"],
            "space.data.eval_fraction: task.folds chooses the hel",
        ),
        (
            ["+task.arguments.eta=0.9", "task.arguments.learning_rate=interval(0.1, 0.5)"],
            "task.arguments.eta=0.9: is XGBoost's other name of learning_rate, and only one of the two has an effect",
        ),
        (
            ["task.arguments.lambda=interval(1, 9)", "+task.arguments.reg_lambda=1"],
            "space.task.arguments.lambda: is XG",
        ),
        (["search.metric=eval/auc"], "the task estimator does not report it; it reports .*eval/roc_auc"),
        (["task._target_=xgboost.XGBRegressor", "search.metric=eval/f1"], "it reports eval/loss, eval/mae"),
        (["scaling.num_workers=2"], "scaling.num_workers=2: an estimator is fitted by one worker"),
        (["+model=mlp"], "model: task.kind=estimator ignores this section"),
        (["train.lr=interval(0.1, 1)"], "train"),
        (["task.folds=5", "search.value=best"], "search.value=best: with task.folds=5"),
        (["task.folds=5", "task.patience=2"], "patience=2: with folds=5 each fold is one report"),
        (["task.folds=1"], "task.folds=1"),
        (
            ["task.folds=3", "data.path=rows.csv", "data.eval_path=rows.csv"],
            "data.eval_path=rows.csv is not read; remove one",
        ),
        (["checkpoint.every=2"], "checkpoint.every=2: an estimator saves whenever it reports"),
        (["search.scheduler.resource=epochs"], "search.scheduler.resource=epochs: the task estimator does not count"),
    ],
)
def test_a_mistake_names_key_value_and_fix(tokens: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(*tokens)


@pytest.mark.parametrize("given", [["+task.arguments.subsample_freq=1"], ["task.arguments.subsample=0.5", "~space"]])
def test_lightgbm_with_parts_of_the_rows_or_a_part_that_is_not_searched_is_no_mistake(given: list[str]) -> None:
    plan("task._target_=lightgbm.LGBMClassifier", *given)


@pytest.mark.parametrize(
    "tokens",
    [
        ["search.metric=eval/f1", "search.mode=max", "task.arguments.loss=choice(log_loss, hinge)"],
        ["task.arguments.loss=choice(hinge, squared_hinge)", "data.imputation=choice(mean, median)"],
        ["task.arguments.loss=choice(log_loss, modified_huber)", "data.standardize=choice(true, false)"],
    ],
    ids=str,
)
def test_estimators_that_can_be_compared_are_no_mistake(tokens: list[str]) -> None:
    plan("task._target_=sklearn.linear_model.SGDClassifier", *OTHER, *tokens)


@pytest.mark.parametrize(
    "tokens",
    [
        ["+task.arguments.eta=0.9", "~space"],
        ["+task.arguments.random_state=3", "seed=choice(1, 2)"],
        ["data.path=rows.csv", "data.target=label", "data.time=price", "data.split_seed=choice(1, 2)"],
        ["task=choice(estimator, linear)", "~space", "data.imputation=choice(mean, median)"],
    ],
    ids=str,
)
def test_a_value_that_may_have_an_effect_or_that_is_not_searched_is_no_mistake(tokens: list[str]) -> None:
    Path("own/task").mkdir(parents=True)
    Path("own/task/linear.yaml").write_text(
        "defaults: [estimator]\n_target_: sklearn.linear_model.LogisticRegression\n"
    )
    planned("conf=estimator", *tokens, folders=[Path("own")])


def test_a_misspelt_class_is_one_mistake() -> None:
    with pytest.raises(ConfigError) as error:
        plan("task._target_=sklearn.ensemble.RandomForest", *OTHER)
    assert len(str(error.value).splitlines()) == 1


def test_a_library_that_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def without(name: str, *arguments: Any) -> Any:
        return None if name == "lightgbm" else find(name, *arguments)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(ConfigError, match=r"lightgbm is not installed; pip install 'ray-sweeps\[boosting\]'"):
        plan("task._target_=lightgbm.LGBMClassifier", *OTHER)


def test_the_value_of_a_trial_with_folds_is_that_of_its_last_report() -> None:
    config: SweepConfig = plan("task.folds=3").config
    assert config.search.value == "last"
    assert config.training().checkpoint.keep == ["last"]
    objectives = Objectives.of(config.search)
    assert objectives.improves((2.0,), (1.0,))
    assert not Objectives.of(plan().config.search).improves((2.0,), (1.0,))


@pytest.mark.slow
def test_arguments_that_the_library_does_not_know_and_values_that_it_refuses_are_found_by_the_check_before_the_trials(
    working_folder: Path,
) -> None:
    for tokens, message in (
        (["+task.arguments.max_dept=3"], "task.arguments.max_dept=3: task._target_=xgboost.XGBClassifier takes no arg"),
        (["task.arguments.max_depth=-3"], "max_depth"),
    ):
        checked = plan("search.num_trials=2", *tokens)
        assert len(list(configs_to_check(checked))) > 1
        with Preflight(checked) as preflight, pytest.raises(ConfigError, match=message):
            preflight.result()
