"""Loads the trials from which a search learns: those of earlier sweeps, and those of other programs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import yaml

from sweeps.compose.dotted import MISSING, find
from sweeps.config.warm_start import MLflowExperiment, OptunaStudy, OtherTrials, WarmStart
from sweeps.constants import CONFIG_ARTIFACT
from sweeps.errors import UnknownName, UserError
from sweeps.search.samplers.earlier_sweep import EarlierSweep, as_point
from sweeps.space.space import Lookup, Point, Space
from sweeps.tracking.artifacts import read_text
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.warm_start.points import as_earlier_sweep


def load_earlier(
    uri: str, names: Sequence[WarmStart], space: Space, lookup: Lookup, metric: str, mode: str
) -> list[EarlierSweep]:
    """Load the finished and pruned trials of earlier sweeps from their record in MLflow, and trials of other programs.

    A trial is left out if one of its values is outside of this sweep's ranges, or if a choice that this sweep does not
    search differs from this sweep's own value. Numbers that this sweep does not search are ignored. A parameter that
    only this sweep searches has the value of the earlier sweep's config; the trial is left out if that is unknown or
    outside of the range.

    Args:
        uri: Tracking URI.
        names: Names of the sweeps, or ``OptunaStudy``, ``MLflowExperiment`` and ``TrialTable``, as in
            ``search.warm_start``.
        space: This sweep's space.
        lookup: Returns this sweep's own value at a path.
        metric: Metric that this sweep optimises.
        mode: ``min`` or ``max``.

    Returns:
        The trials of each sweep, in the order of the names.

    Raises:
        UserError: There is no such sweep or source, it optimised another metric, or none of its trials lies in the
            space.
        TrackingUnreachable: The server does not answer.

    Example:
        >>> from sweeps.search import FloatDistribution, Space, load_earlier
        >>> space = Space({"train.lr": FloatDistribution(type="float", low=1e-5, high=1e-2, log=True)})
        >>> load_earlier("sqlite:///mlflow.db", [], space, lambda path: None, "eval/loss", "min")
        []
    """
    earlier = []
    for index, name in enumerate(names):
        if not isinstance(name, str):
            key = f"search.warm_start.{index}"
            earlier.append(load_other_trials(key, name, uri, space, lookup, (metric, mode)))
            continue
        key = f"search.warm_start.{index}={name}"
        try:
            record = load_sweep(uri, name)
        except UnknownName as error:
            raise UserError(f"{key}: {error}") from None
        earlier.append(_overlap(record, key, space, lookup, config_lookup(uri, record), (metric, mode)))
    return earlier


def load_other_trials(
    key: str, source: OtherTrials, tracking_uri: str, space: Space, lookup: Lookup, objective: tuple[str, str]
) -> EarlierSweep:
    """Load the trials of one source that lie in this sweep's space.

    Raises:
        UserError: The source does not exist, cannot be read, or has no trial in the space.
        TrackingUnreachable: Its MLflow server does not answer.
    """
    metric, mode = objective
    # The readers import Optuna, MLflow or pandas, which takes seconds.
    if isinstance(source, OptunaStudy):
        from sweeps.warm_start.optuna_study import read_study

        search = read_study(key, source)
    elif isinstance(source, MLflowExperiment):
        from sweeps.warm_start.mlflow_experiment import read_experiment

        search = read_experiment(key, source, tracking_uri, metric)
    else:
        from sweeps.warm_start.trial_table import read_table

        search = read_table(key, source, metric)
    return as_earlier_sweep(key, search, source.parameters, source.fixed, space, lookup, mode)


def _overlap(
    record: SweepRecord, key: str, space: Space, lookup: Lookup, config: Lookup, objective: tuple[str, str]
) -> EarlierSweep:
    metric, mode = objective
    if objective not in list(zip(record.metrics, record.modes, strict=True)):
        theirs = ", ".join(f"{mode} {metric}" for metric, mode in zip(record.metrics, record.modes, strict=True))
        raise UserError(
            f"{key}: its objective is {theirs or 'unknown'}, and that of this sweep is {mode} {metric}; "
            "leave it out, or set search.metric and search.mode to the same"
        )
    measured: list[tuple[float, Point, str]] = []
    refusals: Counter[str] = Counter()
    trials = [trial for trial in record.trials if trial.state in ("finished", "pruned") and trial.violation is None]
    for trial in trials:
        value = _value(trial, record.metrics.index(metric))
        point = as_point(space, lookup, config, trial.params)
        if isinstance(point, str):
            refusals[point] += 1
        elif value is not None and math.isfinite(value):
            measured.append((value, point, trial.run_id))
    if not measured:
        why = "; ".join(f"{count} because of {path}" for path, count in refusals.most_common(3))
        if not refusals:
            raise UserError(f"{key}: it has no finished trial; leave it out")
        outside = f"none of its {len(trials)} finished trials lies in this sweep's space ({why})"
        raise UserError(f"{key}: {outside}; widen the ranges, or leave it out")
    measured.sort(key=lambda each: each[0], reverse=mode == "max")
    values, points, runs = zip(*measured, strict=True)
    return EarlierSweep(record.sweep, list(points), list(values), list(runs))


def _value(trial: TrialRecord, objective: int) -> float | None:
    return trial.values[objective] if trial.values else trial.value


def config_lookup(uri: str, record: SweepRecord) -> Lookup:
    """Return a lookup in an earlier sweep's config; it returns None for every path if the config was not recorded."""
    text = read_text(uri, record.mlflow.run_id, CONFIG_ARTIFACT)
    values = None if text is None else yaml.safe_load(text)

    def lookup(path: str) -> Any:
        found = find(values, path)
        return None if found is MISSING else found

    return lookup
