"""Status of a running sweep on its parent run: trials by state, the best trial or Pareto front, and the sweep's
time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any

from sweeps import constants
from sweeps.config.objectives import Objectives, Values
from sweeps.tracking.journal import PARENT, Points, Tags
from sweeps.tracking.logged_steps import LoggedSteps
from sweeps.tracking.mlflow_characters import LONGEST_TAG, from_name
from sweeps.tracking.time_account import TimeAccount
from sweeps.tracking.values import first_as_json, now_ms, to_text, written

WRITE_EVERY_S = 1.0
"""Minimum seconds between two status entries."""
WRITE_TIME_EVERY_S = 10.0
"""Minimum seconds between two status entries if only the sweep's time has changed."""

Front = Sequence[tuple[str, Values, Mapping[str, Any]]]
"""Id, values and parameters of the best trial; with several objectives, of the trials of the Pareto front."""


class StatusWriter:
    """Writes the changed parts of a sweep's status to the journal."""

    def __init__(self, objectives: Objectives, put: Callable[[Points | Tags], None]) -> None:
        self._objectives, self._put = objectives, put
        self._logged = LoggedSteps()
        """Steps of the parent run's metrics that are recorded."""
        self._best: tuple[int, Mapping[str, float]] = 0, {}
        """Step and values of the metrics of the best trials as last recorded."""
        self._lock = Lock()
        self._written: dict[str, str] = {}
        """The tags as last written."""
        self._written_at = 0.0
        self._front: set[str] = set()
        self.write_latest: Callable[[], None] = lambda: None
        """Writes the status of the last ``update`` with the sweep's duration."""

    def replay(self, points: Points) -> None:
        """Continue after metrics that an earlier session has recorded."""
        self._logged.take(points.step, points.metrics)
        if any(name.startswith(constants.BEST_PREFIX) for name in points.metrics):
            self._best = points.step, points.metrics

    def restore(self, tags: Mapping[str, str], marked: set[str]) -> None:
        """Continue from the status in MLflow, which may have refused journal entries, and from the trials that are
        tagged as the Pareto front."""
        of_best = (constants.TAG_BEST_TRIAL, constants.TAG_BEST_VALUE)
        self._written = {
            from_name(key): text
            for key, text in tags.items()
            if key in of_best or key.startswith(constants.TAG_BEST_PARAMETER_PREFIX)
        }
        self._front = marked

    def update(self, counts: Mapping[str, int], front: Front, time: Mapping[str, Any]) -> None:
        """Write the status, unless it was written less than ``WRITE_EVERY_S`` ago."""
        with self._lock:
            passed = monotonic() - self._written_at
            if passed >= WRITE_EVERY_S:
                self._write(counts, front, time, with_time=passed >= WRITE_TIME_EVERY_S)
            self.write_latest = partial(self._write_last, counts, front, time)

    def _write_last(self, counts: Mapping[str, int], front: Front, time: Mapping[str, Any]) -> None:
        """Write the status, and the sweep's duration and the shares of its time account as metrics, whose step is the
        number of the session. MLflow's own duration would include pauses between drivers."""
        metrics = {constants.DURATION_METRIC: float(time.get("wall_s", 0.0))}
        if "account" in time:
            metrics |= TimeAccount.from_json(time["account"]).metrics()
        session = len(time.get("sessions", ()))
        with self._lock:
            self._write(counts, front, time, with_time=True)
            if new := self._logged.take(session, metrics):
                self._put(Points(PARENT, session, now_ms(), new))

    def _write(self, counts: Mapping[str, int], front: Front, time: Mapping[str, Any], *, with_time: bool) -> None:
        now: dict[str, str] = {constants.TAG_COUNTS: json.dumps(dict(counts))}
        metrics: dict[str, float] = {}
        if front:
            trials = [trial for trial, _, _ in front]
            _, values, params = front[0]
            several = len(values) > 1
            now[constants.TAG_BEST_TRIAL] = first_as_json(trials) if several else trials[0]
            now[constants.TAG_BEST_VALUE] = written(values)
            metrics = self._best_metrics([values for _, values, _ in front])
            if several:
                self._mark_front(set(trials))
            else:
                best = {constants.TAG_BEST_PARAMETER_PREFIX + path: to_text(each) for path, each in params.items()}
                now |= {name: text[:LONGEST_TAG] for name, text in best.items()}
        before = self._written
        changed: dict[str, str | None] = {key: text for key, text in now.items() if before.get(key) != text}
        changed |= dict.fromkeys(before.keys() - now.keys())
        if not (changed or with_time):
            return
        changed[constants.TAG_TIME] = json.dumps(dict(time))
        ended = sum(count for state, count in counts.items() if state != "running")
        step = max(ended, self._best[0])  # after a resume fewer have ended, and MLflow shows the latest step
        if metrics and (step, metrics) != self._best:
            self._put(Points(PARENT, step, now_ms(), metrics))
            self._best = step, metrics
        self._put(Tags(PARENT, changed))
        self._written, self._written_at = now, monotonic()

    def _best_metrics(self, front: Sequence[Values]) -> dict[str, float]:
        """Return the best value of each objective under its own metric name, because MLflow lists the parent run among
        its trials' runs."""
        columns = zip(self._objectives.metrics, self._objectives.modes, zip(*front, strict=True), strict=True)
        return {
            f"{constants.BEST_PREFIX}{metric}": float(min(column) if mode == "min" else max(column))
            for metric, mode, column in columns
        }

    def _mark_front(self, front: set[str]) -> None:
        for trial in front ^ self._front:
            self._put(Tags(trial, {constants.TAG_PARETO: "true" if trial in front else None}))
        self._front = front
