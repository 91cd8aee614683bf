"""Comparison of sweeps of the same metric: best values, time, worker-hours, and differences of their configs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

import yaml
from rich.console import Console
from rich.text import Text

from sweeps.config.objectives import as_loss
from sweeps.errors import UserError
from sweeps.report.formatting import duration
from sweeps.report.held_workers import lanes_found, worker_hours
from sweeps.report.plain_console import plain_table, print_lines
from sweeps.report.report_data import best_values, recorded_config
from sweeps.texts.wording import counted
from sweeps.tracking.artifacts import if_readable
from sweeps.tracking.record import SweepRecord, TrialRecord, last_update
from sweeps.tracking.values import finite, short

NOT_COMPARED = ("name", "output_dir", "tracking")
"""Sections of a config that do not affect the search."""
MOST_DIFFERENCES = 40
ABSENT = "-"
UNKNOWN = "?"


@dataclass(frozen=True)
class BestSoFar:
    """Best value and effort of a sweep at the end of one of its trials."""

    trials: int
    """Number of trials until then. Those that have not ended come last."""
    seconds: float
    """Seconds since the sweep began, excluding the pauses between its drivers."""
    hours: float | None
    """Hours of all workers that trials held; None if not recorded."""
    best: float
    """Best value of the metric so far."""


@dataclass(frozen=True)
class Compared:
    """One of the compared sweeps."""

    record: SweepRecord
    config: Mapping[str, str] | None
    """The sweep's config by dotted path, each value as text; None if it is unknown."""

    @cached_property
    def curve(self) -> list[BestSoFar]:
        """Best value so far, at the end of each trial."""
        ended = sorted(self.record.trials, key=self._end)
        others = sorted([*self.record.staged, *self.record.repeats], key=self._end)
        hours, known = 0.0, self.config is not None
        curve = []
        for count, (trial, best) in enumerate(zip(ended, best_values(ended, self.record.mode), strict=True), 1):
            at, new = self._end(trial), [trial]
            while others and self._end(others[0]) <= at:
                new.append(others.pop(0))
            known &= all(each.spans or each.steps == 0 for each in new)
            hours += self._hours(new)
            if best is not None:
                curve.append(BestSoFar(count, self.record.elapsed(at), hours if known else None, best))
        return curve

    @cached_property
    def workers(self) -> set[str]:
        """Names of all trials' workers, each with its host."""
        return {worker for trial in self.record.all_trials for span in trial.spans for worker in span.workers}

    def _end(self, trial: TrialRecord) -> float:
        """Return the Unix time at which a trial ended, or of its driver's last update if it has not ended."""
        return last_update(self.record) if trial.ended is None else trial.ended

    @property
    def value(self) -> float | None:
        """Best value of all trials."""
        return self.curve[-1].best if self.curve else None

    @property
    def hours(self) -> float | None:
        """Hours of all workers of the whole sweep; None if not recorded."""
        spans = self.config is not None and all(trial.spans for trial in self.record.all_trials if trial.steps)
        return self._hours(self.record.all_trials) if spans else None

    def _hours(self, trials: Sequence[TrialRecord]) -> float:
        """Return the worker-hours of trials, or their GPU-hours; trials that share a GPU or a worker count their
        part."""
        config = self.config or {}
        lanes, gpus = config.get("scaling.trials_per_group", "1"), config.get("scaling.resources_per_worker.GPU", "1")
        gpus = config.get(f"scaling.pools.{config.get('scaling.pool')}.resources_per_worker.GPU", gpus)
        shared_by = lanes_found(self.record) if lanes == "auto" else int(lanes)
        part = float(gpus) if _are_gpus(self.workers) and 0 < float(gpus) < 1 else 1.0
        return part * sum(worker_hours(self.record, trial) for trial in trials) / shared_by

    def reached(self, target: float) -> BestSoFar | None:
        """First point at which the best value was at least as good as the target."""
        loss = as_loss(target, self.record.mode)
        return next((point for point in self.curve if as_loss(point.best, self.record.mode) <= loss), None)


@dataclass(frozen=True)
class Comparison:
    """Several sweeps of the same metric."""

    sweeps: list[Compared]
    """The sweeps, in the order in which they were named."""

    @property
    def metric(self) -> str:
        """First objective's metric, which is the same for all sweeps."""
        return self.sweeps[0].record.metric

    @property
    def mode(self) -> str:
        """First objective's mode, ``min`` or ``max``."""
        return self.sweeps[0].record.mode

    @property
    def unit(self) -> str:
        """Unit of ``hours``."""
        return "GPU-hours" if _are_gpus(set[str]().union(*(each.workers for each in self.sweeps))) else "worker-hours"

    @cached_property
    def best(self) -> float | None:
        """Best value of all sweeps."""
        values = [each.value for each in self.sweeps if each.value is not None]
        return (min if self.mode == "min" else max)(values, default=None)

    @cached_property
    def target(self) -> float | None:
        """Value that every sweep with a value has reached: the worst of their best values; None without values."""
        values = [each.value for each in self.sweeps if each.value is not None]
        return (max if self.mode == "min" else min)(values, default=None)

    @cached_property
    def differences(self) -> dict[str, list[str]]:
        """Config paths with different values, and the value of each sweep; ``?`` for a sweep of unknown config."""
        configs = [each.config for each in self.sweeps]
        known = [config for config in configs if config is not None]
        paths = dict.fromkeys(path for config in known for path in config)
        differ = [path for path in paths if len({config.get(path, ABSENT) for config in known}) > 1]
        return {path: [UNKNOWN if each is None else each.get(path, ABSENT) for each in configs] for path in differ}

    def as_json(self) -> dict[str, Any]:
        """Document that ``compare --json`` prints."""
        return {
            "metric": self.metric,
            "mode": self.mode,
            "target": finite(self.target),
            "hours": self.unit,
            "sweeps": [self._sweep(each) for each in self.sweeps],
            "differences": {
                path: dict(zip((each.record.sweep for each in self.sweeps), texts, strict=True))
                for path, texts in self.differences.items()
            },
        }

    def _sweep(self, each: Compared) -> dict[str, Any]:
        reached = None if self.target is None else each.reached(self.target)
        best = each.record.best
        return {
            "sweep": each.record.sweep,
            "status": each.record.status,
            "counts": each.record.counts,
            "best": None if best is None else {"trial": best.trial, "value": finite(best.value)},
            "wall_s": each.record.time.wall_s,
            "hours": each.hours,
            "target_reached": None if reached is None else asdict(reached),
            "curve": [asdict(point) for point in each.curve],
        }


def _are_gpus(workers: Collection[str]) -> bool:
    """Whether each worker has a GPU of its own or shares one (``host/0``)."""
    return bool(workers) and all("/" in worker for worker in workers)


def compare_sweeps(
    records: Sequence[SweepRecord], config_text: Callable[[SweepRecord], str | None] = recorded_config
) -> Comparison:
    """Compare sweeps of the same metric. Their configs are read by ``config_text``, by default from MLflow.

    Raises:
        UserError: There is only one sweep, or the sweeps do not have the same (first) metric.
    """
    names = [record.sweep for record in records]
    if len(set(names)) < 2:
        raise UserError("compare: name two sweeps or more; `python -m sweeps list` lists them")
    objectives = {(record.metric, record.mode) for record in records}
    if len(objectives) > 1:
        theirs = ", ".join(f"{record.sweep} has {record.mode} {record.metric}" for record in records)
        raise UserError(f"compare: the sweeps must have the same metric and mode; {theirs}")
    unique = {record.sweep: record for record in records}.values()
    texts = [if_readable(partial(config_text, record)) for record in unique]
    return Comparison([Compared(record, _config(text)) for record, text in zip(unique, texts, strict=True)])


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print a row for each sweep, and the differences of their configs."""
    target = comparison.target
    columns = ("sweep", "status", "trials", "best")
    table = plain_table(*columns, right=columns[2:], whole=columns[:1], overflow="fold")
    for name in ("took", comparison.unit):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("" if target is None else f"reached {short(target)} after")
    for each in comparison.sweeps:
        record, best = each.record, "" if each.value is None else f"{each.value:.5g}"
        table.add_row(
            record.sweep,
            record.status,
            str(len(record.trials)),
            Text(best, "bold green" if best and each.value == comparison.best else ""),
            duration(record.time.wall_s),
            "" if each.hours is None else f"{each.hours:.3g}",
            _described(each.reached(target), comparison.unit) if target is not None else "",
        )
    print_lines(console, f"{comparison.mode} of {comparison.metric}")
    console.print(table)
    print_lines(console, *unknown_configs(comparison))
    if not comparison.differences:
        if all(each.config is not None for each in comparison.sweeps):
            console.print("Their configs are the same.")
        return
    console.print()
    names = [each.record.sweep for each in comparison.sweeps]
    different = plain_table("differs", *names, whole=("differs",), overflow="fold")
    for path, texts in list(comparison.differences.items())[:MOST_DIFFERENCES]:
        different.add_row(path, *texts)
    console.print(different)
    if len(comparison.differences) > MOST_DIFFERENCES:
        console.print(f"and {len(comparison.differences) - MOST_DIFFERENCES} more; --json has all")


def unknown_configs(comparison: Comparison) -> list[str]:
    """Return a sentence for each sweep whose config is unknown."""
    return [
        f"The config of {each.record.sweep} is not recorded, or cannot be read here."
        for each in comparison.sweeps
        if each.config is None
    ]


def _described(point: BestSoFar | None, unit: str) -> str:
    if point is None:
        return ""
    hours = "" if point.hours is None else f", {point.hours:.3g} {unit}"
    return f"{counted(point.trials, 'trial')}, {duration(point.seconds)}{hours}"


def _config(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    config = yaml.safe_load(text)
    space = config.pop("space", {})
    flat = {path: text for name in config if name not in NOT_COMPARED for path, text in _leaves(name, config[name])}
    return flat | {f"space.{path}": _distribution(each) for path, each in space.items()}


def _leaves(path: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, dict) and value:
        return [leaf for name, each in value.items() for leaf in _leaves(f"{path}.{name}", each)]
    return [(path, value if isinstance(value, str) else json.dumps(value))]


def _distribution(distribution: Mapping[str, Any]) -> str:
    """Describe a distribution in words, such as ``float, low 0.0001, high 0.1, log``."""
    words = [str(distribution["type"])]
    for name, value in distribution.items():
        if value is True:
            words.append(name)
        elif name != "type" and value is not False and value not in (None, {}, []):
            words.append(f"{name} {value if isinstance(value, str) else json.dumps(value)}")
    return ", ".join(words)
