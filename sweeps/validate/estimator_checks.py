"""Checks an estimator's class and arguments. Classes of installed libraries are imported; a user's own are not, since
that would run the user's code."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from sweeps.texts.suggestions import did_you_mean
from sweeps.texts.wording import value_text
from sweeps.validate.model_checks import check_installed
from sweeps_train.config import ClassificationTask, EstimatorTask, RegressionTask
from sweeps_train.estimators.construct import (
    FIT_AT_ONCE,
    estimator_class,
    goal_of,
    is_native,
    library_of,
    unknown_arguments,
)
from sweeps_train.tables.encoding import Goal

LIBRARIES = ("sklearn", "xgboost", "lightgbm")
METRICS: dict[Goal, list[str]] = {
    "classification": ClassificationTask(kind="classification").metrics,
    "regression": RegressionTask(kind="regression").metrics,
}
"""Metrics of the built-in tasks for tables; an estimator reports those that depend only on predictions."""
NAMES_OF_XGBOOST = {
    "eta": "learning_rate",
    "lambda": "reg_lambda",
    "alpha": "reg_alpha",
    "min_split_loss": "gamma",
    "seed": "random_state",
    "nthread": "n_jobs",
}
"""XGBoost's other names of arguments; if an argument is given under two names, XGBoost silently uses one of them."""
PARTS_OF_LIGHTGBM = ("subsample", "bagging_fraction", "sub_row", "bagging")
"""LightGBM's names of the part of the rows that each tree is trained on."""
FREQUENCIES_OF_LIGHTGBM = ("subsample_freq", "bagging_freq")
"""LightGBM's names of the number of trees after which it draws other rows; 0, the default, is never."""


def check_library(task: EstimatorTask) -> None:
    """Check that the estimator's library is installed.

    Raises:
        ConfigError: The library of the estimator is not installed.
    """
    root = task.target.partition(".")[0]
    if root in LIBRARIES:
        check_installed(f"task._target_={task.target}", root, "boosting")


def known_goal(task: EstimatorTask) -> Goal | None:
    """Return whether an estimator predicts classes or numbers; None if only running user code could tell, or if its
    class has a mistake, which ``estimator_mistakes`` reports."""
    if task.goal != "auto":
        return task.goal
    if task.target.partition(".")[0] not in LIBRARIES:
        return None
    try:
        return goal_of(task, estimator_class(task))
    except ValueError:
        return None


def known_metrics(task: EstimatorTask) -> list[str]:
    """Return the metrics that an estimator reports; empty if they are unknown."""
    goal = known_goal(task)
    return [] if goal is None else [name for name in METRICS[goal] if name.startswith("eval/")]


def estimator_mistakes(task: EstimatorTask, space: Collection[str]) -> Iterator[str]:
    """Yield one line for each mistake in the class and its arguments."""
    for name in task.arguments:
        if name in FIT_AT_ONCE:
            yield f"task.arguments.{name}: cannot be set in a trial: {FIT_AT_ONCE[name]}; remove it"
    if task.target.partition(".")[0] not in LIBRARIES:
        return
    try:
        found = estimator_class(task)
        goal_of(task, found)
    except ValueError as error:
        yield str(error)
        return
    unknown, names, taken = unknown_arguments(task, found)
    for name in unknown if taken == "all" else ():
        hint = did_you_mean(name, names) or f"; it takes {', '.join(names)}"
        yield f"{_given(task, name, space)}: task._target_={task.target} takes no argument {name!r}{hint}"
    yield from _ignored_values(task, found, space)


def _ignored_values(task: EstimatorTask, found: type[Any], space: Collection[str]) -> Iterator[str]:
    """Yield one line for each value that an estimator would ignore."""
    if is_native(task, found) and not {"task", "task._target_", "task.encoding"} & {*space}:
        for path in ("data.imputation", "data.standardize"):
            if path in space:
                yield (
                    f"space.{path}: task._target_={task.target} gets numbers as they are in the table, so it has no "
                    f"effect; remove it (~space.{path}), or set task.encoding=one_hot"
                )
    if library_of(found) == "xgboost":
        for other, own in NAMES_OF_XGBOOST.items():
            is_searched = {f"task.arguments.{other}", f"task.arguments.{own}"} & {*space}
            if is_searched and {other, own} <= task.arguments.keys():
                yield (
                    f"{_given(task, other, space)}: is XGBoost's other name of {own}, and only one of the two has an "
                    f"effect; remove one (~task.arguments.{own})"
                )
    draws = any(f"task.arguments.{name}" in space or task.arguments.get(name) for name in FREQUENCIES_OF_LIGHTGBM)
    if library_of(found) == "lightgbm" and not draws and "goss" not in task.arguments.values():
        for name in PARTS_OF_LIGHTGBM:
            if f"task.arguments.{name}" in space:
                yield (
                    f"space.task.arguments.{name}: LightGBM trains on all rows without subsample_freq; set "
                    "+task.arguments.subsample_freq=1"
                )


def loss_mistakes(tasks: Iterable[tuple[Mapping[str, Any], EstimatorTask]]) -> Iterator[str]:
    """Yield a mistake if ``eval/loss`` is the log loss at some points of the space and the error rate at others."""
    points = {has_probabilities(task): point for point, task in reversed(list(tasks))}
    if not points.keys() >= {True, False}:
        return
    differing = {path: value for path, value in points[False].items() if points[True].get(path) != value}
    values = ", ".join(f"{path}={value_text(value)}" for path, value in differing.items())
    yield (
        f"search.metric=eval/loss: is the error rate with {values or 'the own values of the config'}, where the "
        "estimator has no probabilities, and the log loss elsewhere, so that its values cannot be compared; use "
        "search.metric=eval/f1 or eval/accuracy with search.mode=max"
    )


def has_probabilities(task: EstimatorTask) -> bool | None:
    """Whether a library's classifier predicts probabilities with these arguments; None if that is unknown."""
    if known_goal(task) != "classification" or task.target.partition(".")[0] not in LIBRARIES:
        return None
    try:
        return hasattr(estimator_class(task)(**task.arguments), "predict_proba")
    except (TypeError, ValueError):  # the arguments are wrong, which other checks report
        return None


def _given(task: EstimatorTask, name: str, space: Collection[str]) -> str:
    path = f"task.arguments.{name}"
    return f"space.{path}" if path in space else f"{path}={task.arguments[name]!r}"
