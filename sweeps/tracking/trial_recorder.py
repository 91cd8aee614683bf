"""Recording of a running sweep's trials: their runs, metrics, tags and artifacts."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from sweeps import constants
from sweeps.config.objectives import Values
from sweeps.folders.trial_files import LOGS, logs_location
from sweeps.provenance.machine import user
from sweeps.tracking.artifact_uploader import CheckpointKind
from sweeps.tracking.delivery import Delivery
from sweeps.tracking.journal import Artifact, GoneBack, NewRun, Points, Status, Tags
from sweeps.tracking.mlflow_texts import run_name
from sweeps.tracking.record import MlflowIds, TrialRecord
from sweeps.tracking.sweep_run import SweepInfo
from sweeps.tracking.time_account import TimeAccount
from sweeps.tracking.trial_history import FailedAttempt, Span, TimedNote, Weights, spans_as_json
from sweeps.tracking.trial_note import trial_note
from sweeps.tracking.trial_progress import CLOSED, TrialProgress
from sweeps.tracking.uris import as_uri
from sweeps.tracking.values import latest_as_json, now_ms, to_text, written

STEPS_TAG_EVERY_S = 1.0
"""Minimum seconds between two updates of a trial's step tag; the last value is written when the trial ends."""
RUN_STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
"""MLflow's status of a run by the state of its trial. A pruned trial counts as finished, not failed."""
LONGEST_ERROR = 1000
OF_ACCOUNT = TimeAccount().metrics().keys()
"""Metrics that are computed from the time account and not measured by the training."""


class TrialRecorder:
    """Records the trials of one sweep. No method waits for MLflow; each may raise ``StorageFailed``."""

    def __init__(
        self,
        delivery: Delivery,
        ids: MlflowIds,
        sweep: SweepInfo,
        commit: Mapping[str, str],
        checkpoints: Literal["copy", "reference", "none"],
    ) -> None:
        self._delivery, self._ids, self._sweep = delivery, ids, sweep
        self._commit, self._checkpoints = dict(commit), checkpoints
        self._trials: dict[str, TrialProgress] = {}
        self._lock = threading.Lock()

    def replay(self, entry: Points | GoneBack) -> None:
        """Mark a journal entry of an earlier session as recorded; ``restore`` must follow."""
        if (trial := self._trials.get(entry.key)) is None:
            trial = self._trials[entry.key] = TrialProgress({})
        if isinstance(entry, Points):
            if any(
                name not in OF_ACCOUNT and not name.startswith(constants.PARAMETER_PREFIX) for name in entry.metrics
            ):
                trial.notice_beginning(entry.step)
            trial.logged.take(entry.step, entry.metrics)
            trial.take_measured(self._sweep.objectives, entry.step, entry.metrics)
        else:
            trial.go_back(entry.step)

    def restore(self, trials: Sequence[TrialRecord]) -> None:
        """Continue with the recorded trials after their entries were replayed."""
        replayed = self._trials
        self._trials = {each.trial: TrialProgress.of(each, replayed.get(each.trial)) for each in trials}

    def start(
        self,
        trial_id: str,
        params: Mapping[str, Any],
        config_yaml: str,
        attempt: int,
        pool: str | None = None,
        repeat_of: str | None = None,
        stage: int | None = None,
    ) -> None:
        """Record that a trial has started, with its sampled values by dotted path. If it had started before, its run
        continues; attempts count from 1. The seed of a trial that repeats another one is among its values."""
        tags: dict[str, str] = {constants.TAG_STATE: "running", constants.TAG_ATTEMPT: str(attempt)}
        if pool is not None:
            tags[constants.TAG_POOL] = pool
        if repeat_of is not None:
            tags |= {constants.TAG_REPEAT_OF: repeat_of, constants.TAG_SEED: to_text(params[constants.SEED])}
        if stage is not None:
            tags[constants.TAG_STAGE] = str(stage)
        with self._lock:
            trial = self._trials.get(trial_id)
            if trial is not None:
                error = {constants.TAG_ERROR: None} if trial.error is not None else {}
                begins = attempt > trial.attempts and not trial.exploits  # by an exploit, a trial's values change
                trial.state, trial.attempts, trial.error = "running", attempt, None
                self._delivery.put(Tags(trial_id, {**tags, **error, **self._description(trial_id)}))
                self._delivery.put(Status(trial_id, "RUNNING"))
                if begins:  # its driver may have died before it recorded the config, or the sweep was extended
                    self.attach(trial_id, constants.CONFIG_ARTIFACT, config_yaml)
                return
            self._trials[trial_id] = TrialProgress(params, attempts=attempt)
            identity = {"mlflow.parentRunId": self._ids.run_id, constants.TAG_TRIAL: trial_id}
            new = NewRun(
                trial_id,
                experiment_id=self._ids.experiment_id,
                name=run_name(trial_id, params),
                tags={
                    **identity,
                    "mlflow.user": user(),
                    constants.TAG_KIND: "trial",
                    constants.TAG_SWEEP: self._sweep.name,
                    constants.TAG_CONF: self._sweep.conf,
                    **self._commit,
                    **tags,
                    **self._description(trial_id),
                },
                params={path: to_text(value) for path, value in params.items()},
                started_ms=now_ms(),
                identity=identity,
            )
            self._delivery.put(new)
            self.attach(trial_id, constants.CONFIG_ARTIFACT, config_yaml)

    def record_attempt(self, trial_id: str, attempt: int) -> None:
        """Record that another attempt at a started trial begins; attempts count from 1."""
        with self._lock:
            self._trials[trial_id].attempts = attempt
            self._delivery.put(Tags(trial_id, {constants.TAG_ATTEMPT: str(attempt), **self._description(trial_id)}))

    def log(
        self,
        trial_id: str,
        step: int,
        metrics: Mapping[str, float],
        timestamp_ms: int | None = None,
        *,
        competes: bool = True,
    ) -> Values | None:
        """Record metrics of a trial at a step, except those that were already logged at this step.

        Args:
            metrics: Values by name; MLflow shows infinite ones as ±1.8e308.
            timestamp_ms: Unix time of the measurement in milliseconds; default: now.
            competes: Whether the search judges these metrics, so that they may be the trial's result or violate a
                limit.

        Returns:
            Values of the objectives at the step, as they were measured first; None if the metrics lack one, or do not
            compete.
        """
        objectives = self._sweep.objectives
        with self._lock:
            trial = self._trials[trial_id]
            trial.notice_beginning(step)
            values = trial.take_measured(objectives, step, metrics) if competes else None
            best: dict[str, float] = {}
            tags: dict[str, str | None] = {}
            if values is not None and trial.take_report(objectives, step, values):
                names = [constants.BEST_PREFIX + name for name in objectives.metrics]
                best = dict(zip(names, values, strict=True))
                tags |= {constants.TAG_VALUE: written(values), constants.TAG_VALUE_STEP: str(step)}
            if new := trial.logged.take(step, {name: float(each) for name, each in {**best, **metrics}.items()}):
                self._delivery.put(Points(trial_id, step, now_ms() if timestamp_ms is None else timestamp_ms, new))
            trial.steps = max(trial.steps, step)
            if monotonic() - trial.steps_tag_at >= STEPS_TAG_EVERY_S:
                trial.steps_tag_at = monotonic()
                tags[constants.TAG_STEPS] = str(trial.steps)
            if competes and (violation := objectives.violation(metrics)) is not None:
                tags[constants.TAG_VIOLATION] = trial.violation = violation
            if tags:
                self._delivery.put(Tags(trial_id, tags))
            return values

    def record_exploit(self, trial_id: str, number: int, step: int, changed: Mapping[str, Any]) -> bool:
        """Record that a trial continues from another trial's step with other values (population based training).

        MLflow's parameters cannot change and keep the first values. New numbers are recorded as metrics, such as
        ``param/train.lr``, and other values as tags. Steps after the given one may be logged again. The exploits of a
        trial are numbered from 1; return whether this one was not recorded before.
        """
        names = {path: f"{constants.PARAMETER_PREFIX}{path}" for path in changed}
        numbers = {path for path, value in changed.items() if type(value) in (int, float)}
        metrics = {names[path]: float(changed[path]) for path in numbers}
        others: dict[str, str | None] = {names[path]: to_text(changed[path]) for path in changed.keys() - numbers}
        with self._lock:
            trial = self._trials[trial_id]
            if number <= trial.exploits:
                return False
            # In one write, with the return last: without it a resumed driver records the whole exploit again.
            values = Points(trial_id, step, now_ms(), metrics), Tags(trial_id, others)
            self._delivery.put(*values, GoneBack(trial_id, step))
            trial.go_back(step)
            return True

    def exploits(self, trial_id: str) -> int:
        """Return how many exploits of a trial are recorded."""
        with self._lock:
            return self._trials[trial_id].exploits

    def record_spans(self, trial_id: str, spans: Sequence[Span], account: TimeAccount | None = None) -> None:
        """Record when and on which workers a trial has trained, in all its attempts so far, and once an attempt has
        ended, the time of its workers by activity."""
        tags: dict[str, str | None] = {constants.TAG_SPANS: spans_as_json(spans)}
        if account is not None:
            tags[constants.TAG_ACCOUNT] = json.dumps(account.as_json())
        self._delivery.put(Tags(trial_id, tags))

    def log_account(self, trial_id: str, step: int, account: TimeAccount) -> None:
        """Record the time account of an ended trial, as metrics at its last step."""
        with self._lock:
            if new := self._trials[trial_id].logged.take(step, account.metrics()):
                self._delivery.put(Points(trial_id, step, now_ms(), new))

    def record_checkpoint(
        self,
        trial_id: str,
        path: str,
        *kinds: CheckpointKind,
        held: str | None = None,
        weights: Weights | None = None,
    ) -> None:
        """Record the folder of a new checkpoint of a trial, as its best one, its last one, or both, in place of earlier
        ones. A held copy of the folder is removed after the upload."""
        assert trial_id in self._trials, f"trial {trial_id} was not started"
        if weights is not None:
            self._trials[trial_id].saved_step = weights.step
        recorded = self._trials[trial_id].checkpoints
        if self._checkpoints == "copy":
            folder = held if held is not None and Path(held).is_dir() else path
            names: dict[str, str] = {kind: f"{constants.CHECKPOINT_ARTIFACTS}/{kind}" for kind in kinds}
            self._delivery.upload(*(Artifact(trial_id, name, folder=folder) for name in names.values()))
            recorded |= names
        elif self._checkpoints == "reference":
            self._delivery.put(Tags(trial_id, {constants.CHECKPOINT_TAGS[kind]: as_uri(path) for kind in kinds}))
            for kind in kinds:
                recorded[kind] = as_uri(path)
        if weights is not None and kinds and self._checkpoints != "none":
            self._trials[trial_id].weights |= dict.fromkeys(kinds, weights)
            text = json.dumps(asdict(weights))
            self._delivery.put(Tags(trial_id, {constants.WEIGHTS_TAGS[kind]: text for kind in kinds}))

    def saved(self, trial_id: str, step: int) -> None:
        """Store the step of a trial's newest checkpoint, for the trial's description."""
        self._trials[trial_id].saved_step = step

    def record_failures(self, trial_id: str, failures: Sequence[FailedAttempt]) -> None:
        """Record all failed or moved attempts of a trial so far."""
        text = latest_as_json([each.as_json() for each in failures])
        self._delivery.put(Tags(trial_id, {constants.TAG_FAILURES: text}))

    def record_notes(self, trial_id: str, notes: Sequence[TimedNote]) -> None:
        """Record all notes of a trial's workers so far."""
        text = latest_as_json([each.as_json() for each in notes])
        self._delivery.put(Tags(trial_id, {constants.TAG_NOTES: text}))

    def attach(self, trial_id: str, name: str, text: str) -> None:
        """Add a text artifact to the run of a started trial; it replaces an earlier one of the same path."""
        self._delivery.upload(Artifact(trial_id, name, text=text))

    def attach_logs(self, trial_id: str) -> None:
        """Add the logs of a trial's workers to its run, with secrets hidden."""
        self._delivery.upload(Artifact(trial_id, LOGS, folder=logs_location(self._sweep.location, trial_id)))

    def end(
        self,
        trial_id: str,
        state: str,
        steps: int,
        attempt: int,
        error: str | None = None,
        *,
        for_good: bool = False,
    ) -> None:
        """Record that a trial has ended: finished, pruned, stopped or failed. Only the last line of its error is
        recorded. ``resume`` does not continue a trial that a person has stopped for good."""
        tags: dict[str, str | None] = {
            constants.TAG_STATE: state,
            constants.TAG_STEPS: str(steps),
            constants.TAG_ATTEMPT: str(attempt),
        }
        with self._lock:
            trial = self._trials[trial_id]
            trial.state, trial.steps, trial.attempts, trial.stopped_for_good = state, steps, attempt, for_good
            if for_good:
                tags[constants.TAG_STOPPED_FOR_GOOD] = "true"
            if error:
                tags[constants.TAG_ERROR] = trial.error = error.strip().splitlines()[-1][:LONGEST_ERROR]
            self._delivery.put(Status(trial_id, RUN_STATUS[state], now_ms()))
            # Last: if the driver dies before this entry is written, the whole end is recorded again.
            self._delivery.put(Tags(trial_id, {**tags, **self._description(trial_id)}))
            if state in CLOSED:
                trial.logged.close()
                trial.measured.clear()

    def _description(self, trial_id: str) -> dict[str, str]:
        """Return the tag with the description of a trial's run. The description is written only together with other
        tags, so that it needs no additional call."""
        text = trial_note(self._sweep.name, trial_id, self._trials[trial_id], self._sweep.objectives)
        return {constants.TAG_DESCRIPTION: text}
