"""What a report is made of: the record, the learning curves, and the parameters with their ranges."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from sweeps.config.space import ConstantDistribution, Distribution
from sweeps.constants import CONFIG_ARTIFACT
from sweeps.tracking.client import connect, request_limits
from sweeps.tracking.metric_history import HistoryPoint, fetch_histories
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.tracking.store import ANSWER_WITHIN_S
from sweeps.tracking.summary import short_names

T = TypeVar("T")

MOST_CURVES = 200
"""Learning curves that are drawn: more can't be told apart."""
BEST_CURVES = 0.3
"""Of those, the share of the best trials."""
POINTS_PER_CURVE = 80

DISTRIBUTIONS = TypeAdapter(dict[str, Distribution])


@dataclass(frozen=True, kw_only=True)
class Material:
    """All that the figures are drawn from."""

    record: SweepRecord
    config: str = ""
    """The sweep's config as YAML; empty if the record has none."""
    curves: Mapping[str, Sequence[HistoryPoint]] = field(default_factory=dict)
    """Of the first objective, by trial; thinned."""

    @cached_property
    def _settings(self) -> dict[str, Any]:
        values = yaml.safe_load(self.config)
        return values if isinstance(values, dict) else {}

    @cached_property
    def space(self) -> Mapping[str, Distribution]:
        """As configured, by path; empty if the record has no config, or one of another version."""
        try:
            return DISTRIBUTIONS.validate_python(self._settings.get("space", {}))
        except ValidationError:
            return {}

    @property
    def is_function(self) -> bool:
        """Whether a user's own function was trained, of which we cannot load the model."""
        task = self._settings.get("task", {})
        return isinstance(task, dict) and task.get("kind") == "function"

    @cached_property
    def valued(self) -> list[TrialRecord]:
        """The trials that have a finite value of every objective, in the order of their number."""
        return [
            trial
            for trial in self.record.trials
            if len(values_of(trial)) == len(self.record.metrics) and all(map(math.isfinite, values_of(trial)))
        ]

    def having(self, path: str) -> list[TrialRecord]:
        """Those that have a parameter: one with a condition is absent where that does not hold."""
        return [trial for trial in self.valued if path in trial.params]

    @cached_property
    def ranked(self) -> list[TrialRecord]:
        """Those, from the best to the worst by the first objective."""
        sign = 1 if self.record.mode == "min" else -1
        return sorted(self.valued, key=lambda trial: sign * values_of(trial)[0])

    def thinned(self, most: int) -> list[TrialRecord]:
        """So many of those that have values: a tenth are the best, the others every so many-th."""
        if len(self.valued) <= most:
            return self.valued
        best = {trial.trial for trial in self.ranked[: most // 10]}
        others = evenly([trial for trial in self.valued if trial.trial not in best], most - len(best))
        kept = best | {trial.trial for trial in others}
        return [trial for trial in self.valued if trial.trial in kept]

    @cached_property
    def paths(self) -> list[str]:
        """What was searched: parameters that had more than one value, or could have had."""
        constant = {path for path, each in self.space.items() if isinstance(each, ConstantDistribution)}
        seen: dict[str, set[str]] = {}
        for trial in self.record.trials:
            for path, value in trial.params.items():
                seen.setdefault(path, set()).add(repr(value))
        return [path for path, values in seen.items() if len(values) > 1 or path in self.space.keys() - constant]

    @cached_property
    def names(self) -> dict[str, str]:
        """Short names of the parameters, by path."""
        return short_names(dict.fromkeys(self.paths))


def gather(record: SweepRecord) -> Material:
    """
    Raises:
        TrackingUnreachable: The server does not answer.
    """
    config = _config(record)
    material = Material(record=record)
    return Material(record=record, config=config, curves=fetch_curves(material))


def fetch_curves(
    material: Material, most: int = MOST_CURVES, points: int = POINTS_PER_CURVE
) -> dict[str, Sequence[HistoryPoint]]:
    """Learning curves of the first objective, by trial.

    Args:
        material: The sweep.
        most: Trials.
        points: Of each of them.

    Raises:
        TrackingUnreachable: The server does not answer.
    """
    record, chosen = material.record, chosen_for_curves(material, most)
    histories = fetch_histories(record.mlflow.tracking_uri, [trial.run_id for trial in chosen], record.metric)
    return {trial.trial: _thinned(histories[trial.run_id], points) for trial in chosen if trial.run_id in histories}


def values_of(trial: TrialRecord) -> tuple[float, ...]:
    """One for each objective; none if it has no value."""
    return trial.values or (() if trial.value is None else (trial.value,))


def can_be_best(trial: TrialRecord) -> bool:
    """Failed trials, and those that broke a limit, never are."""
    return trial.state != "failed" and trial.violation is None


def chosen_for_curves(material: Material, most: int = MOST_CURVES) -> list[TrialRecord]:
    """All trials; of many, the best and those that run, and of the others every so many-th."""
    trials = material.record.trials
    if len(trials) <= most:
        return trials
    first = {trial.trial for trial in material.ranked[: round(most * BEST_CURVES)]}
    first |= {trial.trial for trial in trials if trial.state == "running"}
    others = [trial for trial in trials if trial.trial not in first]
    kept = {trial.trial for trial in evenly(others, max(0, most - len(first)))} | first
    return [trial for trial in trials if trial.trial in kept][:most]


def evenly(items: Sequence[T], count: int) -> list[T]:
    """So many of them, at equal distances, the first and the last among them."""
    if len(items) <= count:
        return list(items)
    if count < 2:
        return list(items[:count])
    return [items[round(index * (len(items) - 1) / (count - 1))] for index in range(count)]


def _thinned(points: Sequence[HistoryPoint], most: int) -> list[HistoryPoint]:
    """At most so many points, with the lowest and the highest."""
    if len(points) <= most:
        return list(points)
    ends = {min(points, key=lambda point: point.value), max(points, key=lambda point: point.value)}
    return sorted({*evenly(points, most - 2), *ends}, key=lambda point: point.step)


def _config(record: SweepRecord) -> str:
    client = connect(record.mlflow.tracking_uri)
    import mlflow

    with TemporaryDirectory() as folder, request_limits(ANSWER_WITHIN_S):
        try:
            path = Path(client.download_artifacts(record.mlflow.run_id, CONFIG_ARTIFACT, folder))
        except (mlflow.exceptions.MlflowException, OSError):  # a report without ranges is still one
            return ""
        return path.read_text(encoding="utf-8")
