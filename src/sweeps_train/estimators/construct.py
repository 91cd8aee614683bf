"""Estimators from their configs: the class, its goal, and the arguments that follow from the worker and the seed."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping
from typing import Any, Literal, cast

from sweeps_train.config.estimator import EstimatorTask
from sweeps_train.tables.encoding import Goal, TableEncoding, plain_names
from sweeps_train.targets import import_target

HANDLES_GAPS = ("xgboost", "lightgbm")
"""Libraries whose estimators accept missing values and categories."""
FIT_AT_ONCE = {
    **dict.fromkeys(
        ("early_stopping_rounds", "early_stopping_round"),
        "the search stops trials that fall behind, task.patience ends one that no longer improves, and its best "
        "checkpoint is kept",
    ),
    "callbacks": "they cannot be written in a config",
    "eval_metric": "metrics are computed from the predictions; name one in search.metric",
    "warm_start": "it is set by Sweeps, which fits the estimator piece by piece",
    "process_type": "trees can only be added",
}
"""Arguments that are not supported, with the reasons."""

MONOTONE = {
    "xgboost": ("monotone_constraints",),
    "lightgbm": ("monotone_constraints", "monotone_constraint", "mc", "monotonic_cst"),
    "sklearn": ("monotonic_cst",),
}
"""Arguments of the libraries' classes that constrain the direction of a column's effect."""
ROUNDS_OF_LIGHTGBM = (
    *("num_iterations", "num_iteration", "n_iter", "num_tree", "num_trees", "num_round", "num_rounds", "nrounds"),
    *("num_boost_round", "max_iter"),
)
"""LightGBM's aliases of ``n_estimators``; an estimator given an alias would fit that many rounds in each piece."""


def estimator_class(task: EstimatorTask) -> type[Any]:
    """Import the class of an estimator.

    Raises:
        ValueError: The class cannot be imported, or has no ``fit`` and ``predict``.
    """
    found = import_target("task", task.target)
    if not inspect.isclass(found) or not hasattr(found, "fit") or not hasattr(found, "get_params"):
        raise ValueError(
            f"task._target_={task.target} is not an estimator: task=estimator needs a class with fit, predict, "
            "get_params and set_params, like those of scikit-learn"
        )
    return found


def goal_of(task: EstimatorTask, found: type[Any]) -> Goal:
    """Return whether an estimator predicts classes or numbers.

    Raises:
        ValueError: The class does not say which, or does neither.
    """
    if task.goal != "auto":
        return task.goal
    kind = _estimator_type(found, task)
    if kind == "clusterer":
        raise ValueError(
            f"task._target_={task.target} is a clusterer, whose result no target column can judge; use a Ray Train "
            "function (conf=ray_train_function) that reports a metric of its own, such as the silhouette"
        )
    if kind not in ("classifier", "regressor"):
        what = f"is a {kind}" if kind else "does not say whether it predicts classes or numbers"
        raise ValueError(
            f"task._target_={task.target} {what}; use a classifier or a regressor, or set task.goal to classification "
            "or regression"
        )
    return "classification" if kind == "classifier" else "regression"


def _estimator_type(found: type[Any], task: EstimatorTask) -> str | None:
    from sklearn.utils import get_tags

    for arguments in ({}, task.arguments):
        with contextlib.suppress(AttributeError, TypeError, ValueError):  # some need an argument
            return cast("str | None", get_tags(found(**arguments)).estimator_type)
    return None


def is_native(task: EstimatorTask, found: type[Any]) -> bool:
    """Whether an estimator takes a data frame with missing values and categories."""
    if task.encoding != "auto":
        return task.encoding == "native"
    return library_of(found) in HANDLES_GAPS or found.__name__.startswith("HistGradientBoosting")


def library_of(found: type[Any]) -> str:
    """Return the library that an estimator comes from, even through a user's subclass."""
    roots = [each.__module__.partition(".")[0] for each in found.__mro__]
    return next((root for root in roots if root in (*HANDLES_GAPS, "sklearn")), roots[0])


def make_estimator(task: EstimatorTask, seed: int, num_cpus: int, encoding: TableEncoding) -> Any:
    """Make an unfitted estimator for a table. It gets ``seed`` as its random state, and ``num_cpus`` threads, if it has
    such arguments and the task does not set them.

    Raises:
        ValueError: The class does not take these arguments, or the table lacks a class or a column that they name.
    """
    found = estimator_class(task)
    is_lightgbm = library_of(found) == "lightgbm"
    arguments = {
        "n_estimators" if is_lightgbm and name in ROUNDS_OF_LIGHTGBM else name: value
        for name, value in task.arguments.items()
    }
    arguments |= _by_number(task, found, arguments, encoding)
    try:
        known = found(**arguments).get_params()
        defaults = _defaults(found, known, seed, num_cpus, has_categories=bool(encoding.categories))
        return found(**{**defaults, **arguments})
    except TypeError as error:
        raise ValueError(f"task.arguments={task.arguments} do not fit task._target_={task.target}: {error}") from error


def _by_number(
    task: EstimatorTask, found: type[Any], arguments: Mapping[str, Any], encoding: TableEncoding
) -> dict[str, Any]:
    """Return the arguments by the names of classes and columns in the forms that the libraries take; a user's own
    classes get theirs unchanged."""
    library, numbered = found.__module__.partition(".")[0], dict[str, Any]()
    for name, value in arguments.items():
        if library not in MONOTONE or not isinstance(value, Mapping):
            continue
        key = f"task.arguments.{name}"
        if name == "class_weight":
            numbered[name] = {encoding.class_index(key, each): weight for each, weight in value.items()}
        elif name in MONOTONE[library]:
            if not is_native(task, found):
                raise ValueError(
                    f"{key}: task._target_={task.target} gets columns without names here; use XGBoost, LightGBM or "
                    "HistGradientBoosting with task.encoding=auto, or give a list for the inputs"
                )
            numbered[name] = _by_column(key, value, encoding, library)
    return numbered


def _by_column(key: str, constraints: Mapping[str, int], encoding: TableEncoding, library: str) -> Any:
    """Return the constraints of columns in the form that a library takes; XGBoost's own mapping fails in its
    ``set_params``, and LightGBM has none."""
    inputs = encoding.input_names
    plain = dict(zip(inputs, plain_names(inputs), strict=True))
    of_plain = {plain.get(each, each): constraint for each, constraint in constraints.items()}
    for each in of_plain:
        if each not in plain.values():
            raise ValueError(f"{key}.{each}: is no input of the estimator; use {', '.join(inputs[:8])}")
    if library == "sklearn":
        return of_plain
    of_all = [of_plain.get(each, 0) for each in plain.values()]
    return of_all if library == "lightgbm" else f"({','.join(map(str, of_all))})"


def _defaults(
    found: type[Any], known: dict[str, Any], seed: int, num_cpus: int, *, has_categories: bool
) -> dict[str, Any]:
    """Return the default arguments that the estimator accepts."""
    library = library_of(found)
    # XGBoost and LightGBM would take all cores, scikit-learn takes one.
    defaults: dict[str, Any] = {"n_jobs": num_cpus} if num_cpus > 1 or library in HANDLES_GAPS else {}
    if has_categories and library == "xgboost":
        defaults["enable_categorical"] = True
    defaults = {name: value for name, value in defaults.items() if name in known}
    if "random_state" in known and known["random_state"] is None:
        defaults["random_state"] = seed
    if library == "lightgbm":
        defaults["verbose"] = -1  # one of its parameters beyond those of the class; it would print lines for each piece
    return defaults


def unknown_arguments(task: EstimatorTask, found: type[Any]) -> tuple[list[str], list[str], Literal["all", "some"]]:
    """Find the arguments of a task that its estimator does not accept.

    Returns:
        Names of the task's arguments that are not in the signature; all names in the signature; and ``all``, or
        ``some`` if the estimator passes other arguments on to its library, so that only fitting shows whether they are
        known.
    """
    parameters: dict[str, inspect.Parameter] = {}
    for each in reversed(found.__mro__):
        if "__init__" in vars(each) and each is not object:
            parameters |= inspect.signature(vars(each)["__init__"]).parameters
    fixed = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    own = inspect.signature(found).parameters
    passes_on = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in own.values())
    taken = parameters if passes_on else own
    names = [name for name, each in taken.items() if each.kind in fixed and name != "self"]
    return [name for name in task.arguments if name not in names], names, "some" if passes_on else "all"
