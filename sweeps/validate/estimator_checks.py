"""Checks an estimator's class and arguments. Classes of installed libraries are imported; a user's own are not, since
that would run the user's code."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Iterator

from sweeps.errors import ConfigError
from sweeps.texts.suggestions import did_you_mean
from sweeps_train.config import ClassificationTask, EstimatorTask, RegressionTask
from sweeps_train.estimators.construct import FIT_AT_ONCE, estimator_class, goal_of, library_of, unknown_arguments
from sweeps_train.tables.encoding import Goal

LIBRARIES = ("sklearn", "xgboost", "lightgbm")
EXTRA = "boosting"
METRICS: dict[Goal, list[str]] = {
    "classification": ClassificationTask(kind="classification").metrics,
    "regression": RegressionTask(kind="regression").metrics,
}
"""Metrics of the built-in tasks for tables; an estimator reports those that depend only on predictions."""
PARTS_OF_LIGHTGBM = ("subsample", "bagging_fraction", "sub_row", "bagging")
"""LightGBM's names of the part of the rows that each tree is trained on."""
FREQUENCIES_OF_LIGHTGBM = ("subsample_freq", "bagging_freq")
"""LightGBM's names of the number of trees after which it draws other rows; 0, the default, is never."""


def check_installed(task: EstimatorTask) -> None:
    """Check that the estimator's library is installed.

    Raises:
        ConfigError: The library of the estimator is not installed.
    """
    root = task.target.partition(".")[0]
    if root in LIBRARIES and importlib.util.find_spec(root) is None:
        raise ConfigError(
            f"task._target_={task.target}: {root} is not installed; pip install 'ray-sweeps[{EXTRA}]', here and on "
            "every machine that trains"
        )


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
    draws = any(f"task.arguments.{name}" in space or task.arguments.get(name) for name in FREQUENCIES_OF_LIGHTGBM)
    if library_of(found) == "lightgbm" and not draws and "goss" not in task.arguments.values():
        for name in PARTS_OF_LIGHTGBM:
            if f"task.arguments.{name}" in space or task.arguments.get(name) not in (None, 1):
                yield (
                    f"{_given(task, name, space)}: LightGBM trains on all rows without subsample_freq; set "
                    "+task.arguments.subsample_freq=1"
                )


def _given(task: EstimatorTask, name: str, space: Collection[str]) -> str:
    path = f"task.arguments.{name}"
    return f"space.{path}" if path in space else f"{path}={task.arguments[name]!r}"
