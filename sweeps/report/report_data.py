"""Data of a report: a sweep's record, its learning curves, and its parameters with their ranges. Functions that read
from MLflow raise ``TrackingUnreachable`` if it does not answer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from sweeps.config.objectives import as_loss
from sweeps.config.space import ConstantDistribution, Distribution
from sweeps.constants import CONFIG_ARTIFACT
from sweeps.report.formatting import duration
from sweeps.texts.wording import counted, counted_states
from sweeps.tracking.artifacts import read_text
from sweeps.tracking.client import ANSWER_WITHIN_S, request_limits
from sweeps.tracking.metric_history import HistoryPoint, fetch_histories
from sweeps.tracking.mlflow_texts import short_names
from sweeps.tracking.record import SweepRecord, TrialRecord

T = TypeVar("T")

MOST_CURVES = 200
"""Maximum number of learning curves in a report's figure: more cannot be distinguished."""
BEST_CURVES = 0.3
"""Share of the best trials among the curves."""
POINTS_PER_CURVE = 80

DISTRIBUTIONS = TypeAdapter(dict[str, Distribution])


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """Everything that the figures are drawn from."""

    record: SweepRecord
    config: str = ""
    """The sweep's config as YAML; empty if the record has none."""
    curves: Mapping[str, Sequence[HistoryPoint]] = field(default_factory=dict)
    """Thinned learning curves of the first objective, by trial."""

    @cached_property
    def _settings(self) -> dict[str, Any]:
        values = yaml.safe_load(self.config)
        return values if isinstance(values, dict) else {}

    @cached_property
    def space(self) -> Mapping[str, Distribution]:
        """The configured distributions by path; empty if the record has no config, or one that this version cannot
        read."""
        try:
            return DISTRIBUTIONS.validate_python(self._settings.get("space", {}))
        except ValidationError:
            return {}

    @property
    def is_function(self) -> bool:
        """Whether the sweep ran a user's own function or program, so that its models cannot be loaded."""
        task = self._settings.get("task", {})
        return isinstance(task, dict) and task.get("kind") in ("function", "command")

    @cached_property
    def valued(self) -> list[TrialRecord]:
        """Trials with a finite value of every objective, in the order of their numbers."""
        return [
            trial
            for trial in self.record.trials
            if len(trial.all_values()) == len(self.record.metrics) and all(map(math.isfinite, trial.all_values()))
        ]

    def having(self, path: str) -> list[TrialRecord]:
        """Trials that have values and this parameter; a trial lacks a parameter whose condition it does not meet."""
        return [trial for trial in self.valued if path in trial.params]

    @cached_property
    def ranked(self) -> list[TrialRecord]:
        """Trials with values, from the best to the worst by the first objective; those that cannot be the best are
        last."""
        loss = {trial.trial: as_loss(trial.all_values()[0], self.record.mode) for trial in self.valued}
        return sorted(self.valued, key=lambda trial: (not trial.may_be_best, loss[trial.trial]))

    def thinned(self, most: int) -> list[TrialRecord]:
        """Select up to ``most`` trials with values, in their order: a tenth are the best, the others evenly spaced."""
        return _selected(self.valued, {trial.trial for trial in self.ranked[: most // 10]}, most)

    @cached_property
    def paths(self) -> list[str]:
        """Paths of the parameters that had more than one value, or could have had."""
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


def tiles(data: ReportData) -> list[tuple[str, str, str]]:
    """Label, value and details of each key number of a sweep."""
    record = data.record
    found = []
    if record.best is not None and len(record.metrics) == 1 and record.best.value is not None:
        found.append((f"best {record.metric}", f"{record.best.value:.5g}", f"trial {record.best.trial}, {record.mode}"))
    elif record.front:
        found.append(("Pareto front", str(len(record.front)), f"of {counted(len(data.valued), 'trial')}"))
    found.append(("trials", f"{len(record.trials):,}", counted_states(record.counts) or "none yet"))
    took = record.time
    found.append(("time", duration(took.wall_s), f"{duration(took.train_s)} of training, summed over trials"))
    found.append(("goodput", f"{took.goodput:.0%}", "of the workers' time" if took.account else "of the trials' time"))
    if took.gpu_s or took.cpu_s:
        device, seconds = ("GPU", took.gpu_s) if took.gpu_s else ("CPU", took.cpu_s)
        cost = f"cost {took.cost:,.2f}" if took.cost else "held by trials"
        found.append((f"{device} hours", f"{seconds / 3600:,.2f}", cost))
    return found


def gather(record: SweepRecord) -> ReportData:
    """Read a sweep's config and learning curves from MLflow."""
    record = record.settled()
    with request_limits(ANSWER_WITHIN_S):
        config = recorded_config(record) or ""
    return ReportData(record=record, config=config, curves=fetch_curves(ReportData(record=record)))


def recorded_config(record: SweepRecord) -> str | None:
    """YAML config of a sweep from MLflow; None if it is missing."""
    return read_text(record.mlflow.tracking_uri, record.mlflow.run_id, CONFIG_ARTIFACT)


def fetch_curves(
    data: ReportData,
    most: int = MOST_CURVES,
    points: int = POINTS_PER_CURVE,
    metric: str | None = None,
    always: Sequence[str] = (),
) -> dict[str, Sequence[HistoryPoint]]:
    """Fetch the learning curves of a metric (default: the first objective), by trial: at most ``most`` trials and those
    in ``always``, with at most ``points`` points each."""
    record, selected = data.record, {trial.trial for trial in chosen_for_curves(data, most)} | set(always)
    chosen = [trial for trial in record.all_trials if trial.trial in selected]
    runs = [trial.run_id for trial in chosen]
    histories = fetch_histories(record.mlflow.tracking_uri, runs, metric or record.metric)
    return {trial.trial: _thinned(histories[trial.run_id], points) for trial in chosen if trial.run_id in histories}


def best_values(trials: Iterable[TrialRecord], mode: str, objective: int = 0) -> list[float | None]:
    """Best value of an objective after each of the trials; None before the first trial that counts as a result."""
    better = min if mode == "min" else max
    best: float | None = None
    found: list[float | None] = []
    for trial in trials:
        values = trial.all_values()
        if trial.may_be_best and len(values) > objective and math.isfinite(values[objective]):
            best = values[objective] if best is None else better(best, values[objective])
        found.append(best)
    return found


def chosen_for_curves(data: ReportData, most: int = MOST_CURVES) -> list[TrialRecord]:
    """All trials; if there are more than ``most``, the best, the running ones, and evenly spaced others."""
    first = {trial.trial for trial in data.ranked[: round(most * BEST_CURVES)]}
    first |= {trial.trial for trial in data.record.trials if trial.state == "running"}
    return _selected(data.record.trials, first, most)


def _selected(trials: Sequence[TrialRecord], first: Set[str], most: int) -> list[TrialRecord]:
    """Select up to ``most`` trials, in their order: those named in ``first``, and evenly spaced others."""
    others = [trial for trial in trials if trial.trial not in first]
    chosen = first | {trial.trial for trial in evenly(others, max(0, most - len(first)))}
    return [trial for trial in trials if trial.trial in chosen][:most]


def evenly(items: Sequence[T], count: int) -> list[T]:
    """Select ``count`` items at equal distances, including the first and the last."""
    if len(items) <= count:
        return list(items)
    if count < 2:
        return list(items[:count])
    return [items[round(index * (len(items) - 1) / (count - 1))] for index in range(count)]


def _thinned(points: Sequence[HistoryPoint], most: int) -> list[HistoryPoint]:
    """Select up to ``most`` points, including the lowest and the highest."""
    if len(points) <= most:
        return list(points)
    ends = {min(points, key=lambda point: point.value), max(points, key=lambda point: point.value)}
    return sorted({*evenly(points, most - 2), *ends}, key=lambda point: point.step)
