"""The journal's entries of one batch, combined by run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sweeps.tracking.journal import Entry, NewRun, Points, Status, Tags
from sweeps.tracking.log_batch import MetricValue
from sweeps.tracking.mlflow_characters import LONGEST_TAG, fit_parameters, storable, to_name

PARENT_RUN = "mlflow.parentRunId"
"""MLflow's own tag of a nested run."""


@dataclass
class RunBatch:
    """The entries of one batch for one run."""

    new: NewRun | None = None
    points: list[MetricValue] = field(default_factory=list)
    tags: dict[str, str | None] = field(default_factory=dict)
    status: Status | None = None

    @property
    def has_more(self) -> bool:
        """Whether the batch contains more than metric values."""
        return self.new is not None or bool(self.tags) or self.status is not None

    def params_and_tags(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the parameters and the tags to set, by their names in MLflow."""
        params, whole = fit_parameters(self.new.params) if self.new is not None else ({}, {})
        return params, {to_name(name): storable(text) for name, text in self.tags.items() if text is not None} | whole

    def deleted_tags(self) -> list[str]:
        """Return the names in MLflow of the tags to delete."""
        return [to_name(name) for name, text in self.tags.items() if text is None]


def first_tags(new: NewRun, parent_id: str) -> dict[str, str]:
    """Return the tags with which a run is created."""
    return {name: storable(text)[:LONGEST_TAG] for name, text in (new.tags | {PARENT_RUN: parent_id}).items()}


def by_run(entries: Iterable[Entry], known: Mapping[str, str]) -> tuple[dict[str, RunBatch], int]:
    """Combine entries by run; return the batches, and the number of metric values in them. Entries of a run without a
    known id that precede its creation belong to a run that a user has deleted."""
    batches: dict[str, RunBatch] = {}
    points = 0
    for entry in entries:
        match entry:
            case Points(key, step, timestamp_ms, metrics):
                points += len(metrics)
                batch = batches.setdefault(key, RunBatch())
                batch.points += [
                    MetricValue(to_name(name), value, timestamp_ms, step) for name, value in metrics.items()
                ]
            case NewRun(key):
                batch = batches.setdefault(key, RunBatch()) if key in known else RunBatch()
                batch.new = entry
                batches[key] = batch
            case Tags(key, tags):
                batches.setdefault(key, RunBatch()).tags.update(tags)
            case Status(key):
                batches.setdefault(key, RunBatch()).status = entry
    return batches, points
