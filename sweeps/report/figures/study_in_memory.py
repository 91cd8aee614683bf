"""A sweep as an Optuna study in memory, for Optuna's own figures and evaluators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from sweeps.config.space import CategoricalDistribution as Choice
from sweeps.config.space import Distribution
from sweeps.config.space import OrdinalDistribution as Order
from sweeps.report.figures.parameter_axis import ParameterAxis
from sweeps.report.report_data import ReportData
from sweeps.space.distributions import is_number
from sweeps.tracking.record import TrialRecord
from sweeps.tracking.values import to_text

LONGEST_CHOICE = 28
"""Maximum number of characters of a choice on an axis."""
LONGEST_WHOLE_CHOICE = 2 * LONGEST_CHOICE
"""Maximum number of characters if choices are written in full, because their labels would be the same."""
LOG_ABOVE = 300
"""Ratio of the highest to the lowest value from which an axis is logarithmic if the config is unknown."""


def build_study(data: ReportData, trials: Sequence[TrialRecord], *, scaled_for: int | None = None) -> optuna.Study:
    """Study of trials with values; a pruned trial's value is the best that it reported.

    Parameters have their short names and the config's ranges, widened to hold all tried values. If ``scaled_for`` is
    an objective, numbers are replaced by their positions from 0 to 1 on the axis, which is logarithmic if they are
    sampled so, and choices by their ranks by the mean of the objective.
    """
    minimize, maximize = StudyDirection.MINIMIZE, StudyDirection.MAXIMIZE
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(verbosity, optuna.logging.WARNING))  # otherwise it logs a line for each study
    try:
        study = optuna.create_study(directions=[minimize if mode == "min" else maximize for mode in data.record.modes])
    finally:
        optuna.logging.set_verbosity(verbosity)
    distributions = {path: distribution_of(data, path) for path in data.paths}
    labels = {path: labels_of(data, path) for path in data.paths}
    made = []
    for trial in trials:
        known = {path: value for path, value in trial.params.items() if path in distributions}
        params = {data.names[path]: labels[path](value) for path, value in known.items()}
        own = {data.names[path]: distributions[path] for path in known}
        made.append(optuna.create_trial(params=params, distributions=own, values=list(trial.all_values())))
    study.add_trials(made if scaled_for is None else _scaled(made, scaled_for))
    return study


def _scaled(trials: Sequence[FrozenTrial], objective: int) -> list[FrozenTrial]:
    """Trials whose parameters are numbers on a linear scale."""
    ranks = _ranks(trials, objective)
    made = []
    for trial in trials:
        params: dict[str, Any] = {}
        own: dict[str, BaseDistribution] = {}
        for name, distribution in trial.distributions.items():
            value = trial.params[name]
            if isinstance(distribution, CategoricalDistribution):
                params[name], own[name] = ranks[name][value], IntDistribution(0, len(ranks[name]) - 1)
            else:
                axis = ParameterAxis(distribution)
                params[name], own[name] = axis.fraction(axis.position(value)), FloatDistribution(0.0, 1.0)
        made.append(optuna.create_trial(params=params, distributions=own, values=trial.values))
    return made


def _ranks(trials: Sequence[FrozenTrial], objective: int) -> dict[str, dict[Any, int]]:
    """Rank of each tried choice by the mean of the objective, by name of the parameter."""
    values: dict[str, dict[Any, list[float]]] = {}
    for trial in trials:
        for name, distribution in trial.distributions.items():
            if isinstance(distribution, CategoricalDistribution):
                values.setdefault(name, {}).setdefault(trial.params[name], []).append(trial.values[objective])

    def mean(numbers: list[float]) -> float:
        return sum(numbers) / len(numbers)  # infinite where they are huge, at which `statistics` raises an error

    return {
        name: {choice: rank for rank, choice in enumerate(sorted(found, key=lambda each: mean(found[each])))}
        for name, found in values.items()
    }


def distribution_of(data: ReportData, path: str) -> BaseDistribution:
    """Optuna distribution of a parameter: the configured one, widened to hold all tried values."""
    configured: Distribution | None = data.space.get(path)
    tried = _tried(data, path)
    if not isinstance(configured, Choice | Order) and all(is_number(value) for value in tried) and tried:
        return _range(configured, tried)
    labels = map(labels_of(data, path), [*_configured_choices(data, path), *tried])
    return CategoricalDistribution(list(dict.fromkeys(labels)) or [None])


def labels_of(data: ReportData, path: str) -> Callable[[Any], Any]:
    """Return the function that labels the values of a parameter: ``label``, but with whole texts if two of them would
    have the same label, or with a number after each label if a string is too long for that."""
    values = [*_configured_choices(data, path), *_tried(data, path)]
    texts = {to_text(value): value for value in values if not is_number(value)}
    labels = {text: label(value) for text, value in texts.items()}
    if len(set(labels.values())) < len(labels):
        is_short = max(map(len, texts)) <= LONGEST_WHOLE_CHOICE
        labels = {
            text: text if is_short else f"{labels[text]} ({number})" for number, text in enumerate(texts, start=1)
        }
    return lambda value: value if is_number(value) else labels[to_text(value)]


def _configured_choices(data: ReportData, path: str) -> list[Any]:
    configured: Distribution | None = data.space.get(path)
    return configured.choices if isinstance(configured, Choice | Order) else []


def _tried(data: ReportData, path: str) -> list[Any]:
    return [trial.params[path] for trial in data.record.trials if path in trial.params]


def label(value: Any) -> Any:
    """Label of a value on an axis: a number, or a string whose middle is left out if it is long, since paths and names
    of models often differ only at their end."""
    if is_number(value):
        return value
    text = to_text(value)
    half = LONGEST_CHOICE // 2
    return text if len(text) <= LONGEST_CHOICE else f"{text[: half - 1]}…{text[-half:]}"


def _range(configured: Distribution | None, tried: Sequence[float]) -> FloatDistribution | IntDistribution:
    low, high = min(tried), max(tried)
    if configured is None:
        log = low > 0 and high / low >= LOG_ABOVE
    else:
        log = bool(getattr(configured, "log", False))
        low, high = min(low, getattr(configured, "low", low)), max(high, getattr(configured, "high", high))
    if all(isinstance(value, int) for value in tried) and isinstance(low, int) and isinstance(high, int):
        return IntDistribution(low, high, log=log)
    return FloatDistribution(float(low), float(high), log=log)
