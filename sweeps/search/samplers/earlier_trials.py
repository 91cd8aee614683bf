"""Trials of earlier sweeps, as points of today's space."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from sweeps.constants import CONFIG_ARTIFACT
from sweeps.errors import UnknownName, UserError
from sweeps.space.distributions import Lookup, Space, as_sampled, contains
from sweeps.tracking.artifacts import read_text
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import SweepRecord, TrialRecord

Point = dict[str, Any]


@dataclass(frozen=True)
class EarlierSweep:
    """What an earlier sweep can tell of today's space."""

    name: str
    points: list[Point]
    """In today's space; the best first."""
    values: list[float]
    """Of the metric, at each point."""
    runs: list[str] = field(default_factory=list)
    """MLflow's run of each point."""


def load_earlier(
    uri: str, names: Sequence[str], space: Space, lookup: Lookup, metric: str, mode: str
) -> list[EarlierSweep]:
    """Finished and pruned trials of earlier sweeps, by their record in MLflow.

    A trial is left out where today's space does not reach: it has a value outside of today's ranges, or was another
    choice of something that is not searched today. A number that was searched then and is not searched today is
    ignored. What is searched today and was not then has the value that the earlier sweep's config had; where that
    cannot be told, or is outside of today's range, the trial is left out.

    Args:
        uri: Tracking URI.
        names: Of the sweeps: ``search.warm_start``.
        space: Today's.
        lookup: Gives today's own values.
        metric: That is optimised today.
        mode: How.

    Raises:
        UserError: There is no such sweep, it optimised something else, or none of its trials lies in today's space.
        TrackingUnreachable: The server does not answer.
    """
    earlier = []
    for index, name in enumerate(names):
        key = f"search.warm_start.{index}={name}"
        try:
            record = load_sweep(uri, name)
        except UnknownName as error:
            raise UserError(f"{key}: {error}") from None
        earlier.append(_overlap(record, key, space, lookup, settings_of(uri, record), (metric, mode)))
    return earlier


def _overlap(
    record: SweepRecord, key: str, space: Space, lookup: Lookup, config: Lookup, objective: tuple[str, str]
) -> EarlierSweep:
    metric, mode = objective
    if objective not in list(zip(record.metrics, record.modes, strict=True)):
        theirs = ", ".join(f"{mode} {metric}" for metric, mode in zip(record.metrics, record.modes, strict=True))
        raise UserError(
            f"{key}: it searched for {theirs or 'nothing'}, and this sweep searches for {mode} {metric}; "
            "leave it out, or set search.metric and search.mode as it did"
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
        outside = f"none of its {len(trials)} finished trials lies in this sweep's space ({why})" if refusals else ""
        raise UserError(f"{key}: {outside or 'it has no finished trial'}; widen the ranges, or leave it out")
    measured.sort(key=lambda each: each[0], reverse=mode == "max")
    values, points, runs = zip(*measured, strict=True)
    return EarlierSweep(record.sweep, list(points), list(values), list(runs))


def _value(trial: TrialRecord, objective: int) -> float | None:
    return trial.values[objective] if trial.values else trial.value


def as_point(space: Space, lookup: Lookup, config: Lookup, params: Mapping[str, Any]) -> Point | str:
    """A trial's parameters as a point of today's space; or the path because of which it is none.

    Args:
        space: Today's.
        lookup: Gives today's own values.
        config: Gives those of the trial's sweep: ``settings_of``.
        params: The trial's.
    """
    for path, value in params.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if path not in space.distributions and not number and value != lookup(path):
            return path
    point: Point = {}
    for path, distribution in space.distributions.items():
        if not space.active(path, point, lookup):
            continue
        value = params[path] if path in params else config(path)
        if not contains(distribution, value):
            return path
        point[path] = as_sampled(distribution, value)
    return point


def settings_of(uri: str, record: SweepRecord) -> Lookup:
    """The values of an earlier sweep's own config; of a sweep without a record of it, none."""
    text = read_text(uri, record.mlflow.run_id, CONFIG_ARTIFACT)
    values = None if text is None else yaml.safe_load(text)
    return _lookup_in(values)


def _lookup_in(values: Any) -> Callable[[str], Any]:
    def lookup(path: str) -> Any:
        found = values
        for part in path.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return found

    return lookup
