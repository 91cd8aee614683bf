"""State of a sweep's runs according to its journal: what MLflow shows once it has received all entries.

A driver that resumes a sweep continues from this state, whether or not MLflow has received all entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sweeps.tracking.journal import PARENT, Entry, NewRun, Points, Status, Tags
from sweeps.tracking.mlflow_characters import fit_parameters, to_name
from sweeps.tracking.run_batch import PARENT_RUN
from sweeps.tracking.store import RawRun


class Fold:
    """State of a sweep's runs after the journal entries that were applied so far."""

    def __init__(self, parent: RawRun, trials: Mapping[str, RawRun]) -> None:
        """Begin with the runs in MLflow. The journal takes precedence over it, but may have lost entries."""
        self.parent = replace(parent, tags=dict(parent.tags))
        """The sweep's own run."""
        self.trials = {trial: replace(run, tags=dict(run.tags)) for trial, run in trials.items()}
        """The trials' runs, by trial."""
        self.metrics: dict[str, dict[str, float]] = {}
        """The latest value of each metric, by trial and name."""

    def take(self, entry: Entry) -> None:
        """Apply the next entry of the journal."""
        match entry:
            case NewRun(key):
                params, whole = fit_parameters(entry.params)
                known = self.trials.get(key)
                self.trials[key] = replace(
                    self.parent,
                    run_id="" if known is None else known.run_id,
                    status="RUNNING",
                    started=entry.started_ms,
                    ended=None,
                    tags={**entry.tags, **whole, PARENT_RUN: self.parent.run_id},
                    params=params,
                )
                self.metrics.pop(key, None)
            case Points(key, metrics=metrics) if key != PARENT:
                self.metrics.setdefault(key, {}).update(metrics)
            case Tags(key, tags) if (run := self._run(key)) is not None:
                for name, text in tags.items():
                    if text is None:
                        run.tags.pop(to_name(name), None)
                    else:
                        run.tags[to_name(name)] = text
            case Status(key, status, ended) if (run := self.trials.get(key)) is not None:
                self.trials[key] = replace(run, status=status, ended=run.ended if ended is None else ended)

    def _run(self, key: str) -> RawRun | None:
        return self.parent if key == PARENT else self.trials.get(key)

    def delete(self, trials: Iterable[str]) -> None:
        """Forget trials whose runs a user has deleted in MLflow."""
        for trial in trials:
            self.trials.pop(trial, None)
