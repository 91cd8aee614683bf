"""Check of an estimator before a search: a few rounds on some of the training rows."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeps_train.config.estimator import EstimatorConfig
from sweeps_train.estimators.construct import estimator_class, goal_of, is_native, library_of, make_estimator
from sweeps_train.estimators.growth import growth_of
from sweeps_train.estimators.rows import Part, fold_splits, held_out_split

MOST_ROWS = 2000
ROUNDS = 2
UNUSED = (re.compile(r"Parameters: \{ ([^{}]*) \} are not used"), re.compile(r"Unknown parameter: (\w+)"))
"""Warnings of XGBoost and LightGBM about arguments that they do not know."""
IGNORED = (
    re.compile(r"\b(?P<kept>\w++) is set=[^\s,]*+, (?P<ignored>\w++)=\S*+ will be ignored"),
    re.compile(r"\bis set with (?P<kept>\w++)=[^\s,]*+, (?P<ignored>\w++)=\S*+ will be ignored"),
    re.compile(r"\bis set with (?P<ignored>\w++)=[^\s,]*+, will be overridden by (?P<kept>\w++)="),
)
"""Warnings of LightGBM about two names of one argument. Its estimators always give an argument its own name, which may
take precedence over another name."""


def probe_mistakes(config: EstimatorConfig) -> Iterator[str]:
    """Yield mistakes that only show during fitting: arguments that the library does not know, or ignores.

    Raises:
        Exception: Any error of reading the table or fitting the estimator.
    """
    found = estimator_class(config.task)
    goal = goal_of(config.task, found)
    folds = config.task.folds
    split = held_out_split(config.data, goal) if folds is None else fold_splits(config.data, goal, folds)[0]
    estimator = make_estimator(config.task, config.seed, 1, split.encoding)
    if library_of(found) == "lightgbm":
        estimator.set_params(verbose=0)  # its warnings name unknown arguments
    model = split.model(estimator, native=is_native(config.task, found))
    rows = _some_rows(split.train)
    inputs, targets = model.inputs(rows.features), rows.targets
    growth = growth_of(estimator)
    printed = io.StringIO()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        growth.grow(estimator, inputs, targets, 0, min(ROUNDS, growth.total))
        model.metrics(inputs, targets, model.encoding.positive_index(config.task.positive_class))
    messages = [printed.getvalue(), *(str(each.message) for each in caught)]
    reasons = {name: f"task._target_={config.task.target} takes no argument {name!r}" for name in _unused(messages)}
    for name, own in _ignored(messages):
        reasons[name] = f"has no effect beside LightGBM's own {own}; name it {own}"
    for name, reason in reasons.items():
        if name in config.task.arguments:
            yield f"task.arguments.{name}={config.task.arguments[name]!r}: {reason}"


def _unused(messages: Iterable[str]) -> list[str]:
    found = [match[1] for message in messages for pattern in UNUSED for match in pattern.finditer(message)]
    return list(dict.fromkeys(name.strip(' "') for names in found for name in names.split(",")))


def _ignored(messages: Iterable[str]) -> list[tuple[str, str]]:
    found = (match for message in messages for pattern in IGNORED for match in pattern.finditer(message))
    return [(match["ignored"], match["kept"]) for match in found]


def _some_rows(part: Part) -> Part:
    """Select some rows, including one of each class."""
    count = len(part.targets)
    if count <= MOST_ROWS:
        return part
    spread = np.arange(MOST_ROWS) * count // MOST_ROWS
    firsts: npt.NDArray[Any] = np.unique(part.targets, return_index=True)[1][:MOST_ROWS]
    rows = np.union1d(spread, firsts)
    features = type(part.features)(part.features.numbers[rows], part.features.categories[rows])
    return Part(features, part.targets[rows])
