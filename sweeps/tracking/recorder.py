"""Records a running sweep in MLflow without ever making it wait: all that it is told goes into the journal in the
sweep's folder, from where other threads carry it to MLflow.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import yaml

from sweeps import constants
from sweeps.compose.dotted import find
from sweeps.config.objectives import Objectives, Values
from sweeps.errors import StorageFull, TrackingUnreachable, UserError
from sweeps.provenance.code import git_commit
from sweeps.provenance.machine import user
from sweeps.redact import redact_uri
from sweeps.tracking.artifact_uploader import TAGS, ArtifactUploader, CheckpointKind
from sweeps.tracking.client import artifact_location, connect
from sweeps.tracking.failed_attempts import FailedAttempt
from sweeps.tracking.failed_attempts import to_text as failures_to_tag
from sweeps.tracking.held_checkpoints import release_all
from sweeps.tracking.journal import (
    JOURNAL_FILE,
    PARENT,
    Artifact,
    GoneBack,
    Journal,
    NewRun,
    Points,
    Status,
    Stored,
    Tags,
)
from sweeps.tracking.logged_steps import LoggedSteps
from sweeps.tracking.outbox import Outbox
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import MlflowIds, TrialRecord
from sweeps.tracking.relocate import Move
from sweeps.tracking.retry import GaveUp, Refused, Retrier
from sweeps.tracking.spans import Span
from sweeps.tracking.spans import to_text as to_tag
from sweeps.tracking.store import RawRun, fetch_runs
from sweeps.tracking.summary import note, run_name, trials_table
from sweeps.tracking.sweep_status import Front, StatusWriter
from sweeps.tracking.uris import as_uri
from sweeps.tracking.values import metric_name, to_text, written
from sweeps.trial_files import LOGS

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)

OPEN_WITHIN_S = 30
HEARTBEAT_S = 10.0
STEPS_EVERY_S = 1.0
"""Least time between two entries on how far a trial is, whose end says it for good."""
SAY_EVERY_S = 30.0
TRIAL_STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
"""State of a trial -> MLflow's status of its run: pruned is no fault."""
SWEEP_STATUS = {"finished": "FINISHED", "stopped": "KILLED", "interrupted": "KILLED", "failed": "FAILED"}


@dataclass
class _Run:
    """What the recorder remembers of a trial's run."""

    values: Values | None = None
    steps: int = 0
    steps_told_at: float = 0.0
    failed_before: bool = False
    logged: LoggedSteps = field(default_factory=LoggedSteps)
    lineage: int = 0
    """How often it has gone on from another trial's state."""

    def go_back(self, step: int) -> None:
        """It goes on from a step of another trial."""
        self.lineage += 1
        self.logged.go_back(step)


@dataclass(frozen=True)
class Left:
    """What MLflow has not taken: it stays in the journal."""

    points: int
    artifacts: int
    entries: bool
    """Whether there are entries at all."""

    def __bool__(self) -> bool:
        return self.entries or self.artifacts > 0


class Recorder:
    """One sweep's way into MLflow. ``open`` and ``close`` wait for MLflow, nothing else does.

    Every method but those two raises ``StorageFull`` if the disk of the sweep's folder is.
    """

    def __init__(
        self,
        uri: str,
        experiment: str,
        *,
        sweep: str,
        conf: str,
        objectives: Objectives,
        folder: Path,
        checkpoints: Literal["copy", "reference", "none"] = "copy",
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing is written before ``open``.

        Args:
            uri: Tracking URI.
            experiment: Name of the experiment; created if there is none.
            sweep: The sweep's name.
            conf: The ``conf=`` that it was started with.
            objectives: What it optimises.
            folder: The sweep's own, absolute.
            checkpoints: Copy checkpoints into the artifacts, write down only where they are, or neither.
            tags: Of the parent run, besides its own.
        """
        self._uri, self._experiment = uri, experiment
        self._sweep, self._conf = sweep, conf
        self._objectives = objectives
        self._checkpoints = checkpoints
        self._folder = folder
        self._tags = dict(tags or {})
        self._trials: dict[str, _Run] = {}
        self._lock = threading.RLock()
        self._description = ""
        self._commit: dict[str, str] = {}
        self._client: MlflowClient
        self._link: Retrier
        self._copier_link: Retrier
        self._journal: Journal
        self._outbox: Outbox
        self._standing: StatusWriter
        self._copier: ArtifactUploader
        self._ids: MlflowIds

    # --- the sweep ---------------------------------------------------------------------------------------------

    def open(self, config_yaml: str, command: str, description: str, *, resume: bool = False) -> MlflowIds:
        """Create the parent run, or with ``resume`` go on with the one that exists and with its trials' runs, after
        MLflow has taken what an earlier driver left.

        Args:
            config_yaml: The composed config.
            command: The command line that starts it.
            description: What the config says of itself, in Markdown.
            resume: The sweep exists.

        Raises:
            TrackingUnreachable: MLflow does not answer.
            UserError: A sweep of that name exists already, or with ``resume`` does not.
            StorageFull: The disk of the sweep's folder is.
        """
        if resume and not Journal.is_in(self._folder):
            raise UserError(
                f"{self._sweep}: {self._folder / JOURNAL_FILE} is missing, which says what MLflow has been told "
                "already; put it back, or start a new sweep with search.warm_start"
            )
        self._client = connect(self._uri)
        self._link = Retrier(self._uri, "writing to MLflow", self._beat)
        self._copier_link = Retrier(self._uri, "writing artifacts to MLflow")
        self._link.give_up_after(OPEN_WITHIN_S)
        self._description = description
        self._commit = {"mlflow.source.git.commit": commit} if (commit := git_commit()) else {}
        self._journal = Journal(self._folder)
        self._outbox = Outbox(self._client, self._link, self._journal, self._beat, HEARTBEAT_S)
        self._standing = StatusWriter(self._objectives, self._outbox.put)
        self._copier = ArtifactUploader(self._client, self._copier_link, self._outbox.wait_for_run, self._stored)
        try:
            self._ids = self._adopt() if resume else self._create(config_yaml, command)
            if resume:
                self.record_config(config_yaml)  # it may have been extended
        except GaveUp as error:
            raise TrackingUnreachable(f"tracking.uri={redact_uri(self._uri)} stopped answering; try again") from error
        except Refused as error:
            raise UserError(f"MLflow at tracking.uri={redact_uri(self._uri)} refuses the sweep: {error}") from error
        self._link.give_up_after(float("inf"))
        self._outbox.start()
        return self._ids

    def record_config(self, config_yaml: str) -> None:
        """Keep the sweep's config, instead of an earlier one."""
        self._store(Artifact(PARENT, constants.CONFIG_ARTIFACT, text=config_yaml))
        if isinstance(planned := find(yaml.safe_load(config_yaml), "search.num_trials"), int):
            self._outbox.put(Tags(PARENT, {constants.TAG_PLANNED: str(planned)}))

    @property
    def ids(self) -> MlflowIds:
        """Where the sweep is in MLflow, once it is open."""
        return self._ids

    def update(
        self,
        counts: Mapping[str, int],
        front: Front,
        time: Mapping[str, Any],
    ) -> None:
        """Write how the sweep stands; may be called often.

        Args:
            counts: Trials by state.
            front: Id, values and parameters of the best trial; of several objectives, those of the Pareto front.
            time: ``wall_s``, ``train_s``, ``goodput``, what trials held in ``cpu_s`` and ``gpu_s``, and the
                ``sessions``.
        """
        with self._lock:
            self._standing.update(counts, front, time)

    def attach(self, files: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Add text artifacts, by their paths, and tags to the parent run."""
        for name, text in files.items():
            self._store(Artifact(PARENT, name, text=text))
        self._outbox.put(Tags(PARENT, dict(tags)))

    def close(self, status: str, patience_s: float = 60, total_s: float = float("inf")) -> Left:
        """Write everything that waits, the table of trials and the summary, and end; what was left.

        Args:
            status: Of the sweep: finished, stopped, failed or interrupted.
            patience_s: Give up when MLflow has taken nothing for so long.
            total_s: Give up after this in any case.
        """
        self._link.give_up_after(patience_s, total_s)
        self._copier_link.give_up_after(patience_s, total_s)
        with suppress(StorageFull):  # whoever is at the end of a full disk has met it before
            self._standing.write_latest()
        artifacts = self._copier.close()
        with suppress(StorageFull):
            self._outbox.put(Tags(PARENT, {constants.TAG_STATE: status}))
            self._outbox.put(Status(PARENT, SWEEP_STATUS[status], _now_ms()))
        if self._outbox.flush():
            self._summarise(status)
        points = self._outbox.close()
        left = Left(points, artifacts, entries=self._journal.position < self._journal.end)
        if not left:  # else a thread may still be about it
            self._journal.close()
            release_all(self._folder / "trials")
        return left

    # --- its trials --------------------------------------------------------------------------------------------

    def start_trial(self, trial_id: str, params: Mapping[str, Any], config_yaml: str, attempt: int) -> None:
        """A trial starts, or starts again: then its run goes on.

        Args:
            trial_id: Unique within the sweep.
            params: Its point: dotted paths and values.
            config_yaml: Its own config.
            attempt: 1 for the first.
        """
        tags: dict[str, str] = {constants.TAG_STATE: "running", constants.TAG_ATTEMPT: str(attempt)}
        with self._lock:
            trial = self._trials.get(trial_id)
            if trial is not None:
                error = {constants.TAG_ERROR: None} if trial.failed_before else {}
                trial.failed_before = False
                self._outbox.put(Tags(trial_id, tags | error))
                self._outbox.put(Status(trial_id, "RUNNING"))
                return
            identity = {"mlflow.parentRunId": self._ids.run_id, constants.TAG_TRIAL: trial_id}
            new = NewRun(
                trial_id,
                experiment_id=self._ids.experiment_id,
                name=run_name(trial_id, params),
                tags={
                    **identity,
                    "mlflow.user": user(),
                    constants.TAG_KIND: "trial",
                    constants.TAG_SWEEP: self._sweep,
                    constants.TAG_CONF: self._conf,
                    **self._commit,
                    **tags,
                },
                params={path: to_text(value) for path, value in params.items()},
                started_ms=_now_ms(),
                identity=identity,
            )
            self._outbox.put(new)
            self._trials[trial_id] = _Run()
            self._store(Artifact(trial_id, constants.CONFIG_ARTIFACT, text=config_yaml))

    def log(self, trial_id: str, step: int, metrics: Mapping[str, float], timestamp_ms: int | None = None) -> None:
        """Metrics of a trial at a step. A (metric, step) that the trial has already is left out.

        Args:
            trial_id: A started trial.
            step: Optimizer steps done.
            metrics: Values by name; infinite ones are shown by MLflow as ±1.8e308.
            timestamp_ms: When they were measured; default: now.
        """
        with self._lock:
            trial = self._trials[trial_id]
            named = {metric_name(name): float(each) for name, each in metrics.items()}
            if new := trial.logged.take(step, named):
                self._outbox.put(Points(trial_id, step, _now_ms() if timestamp_ms is None else timestamp_ms, new))
            tags: dict[str, str | None] = {}
            trial.steps = max(trial.steps, step)
            if monotonic() - trial.steps_told_at >= STEPS_EVERY_S:
                trial.steps_told_at = monotonic()
                tags[constants.TAG_STEPS] = str(trial.steps)
            values = self._objectives.values(metrics)
            if values is not None and self._objectives.improves(values, trial.values):
                trial.values = values
                tags[constants.TAG_VALUE] = written(values)
            if (violation := self._objectives.violation(metrics)) is not None:
                tags[constants.TAG_VIOLATION] = violation
            if tags:
                self._outbox.put(Tags(trial_id, tags))

    def change(self, trial_id: str, lineage: int, step: int, changed: Mapping[str, Any]) -> bool:
        """A trial goes on from a step of another one, with other values; whether that was not recorded yet. MLflow's
        parameters cannot change, and stay the first ones: numbers become metrics ``param/train.lr``, other values tags.

        Args:
            trial_id: A started trial.
            lineage: How often it has done so, this time included.
            step: Where it goes on; what it had logged beyond may be logged again.
            changed: Its new values by path.
        """
        names = {path: f"{constants.PARAMETER_PREFIX}{path}" for path in changed}
        numbers = {path for path, value in changed.items() if type(value) in (int, float)}
        metrics = {metric_name(names[path]): float(changed[path]) for path in numbers}
        others: dict[str, str | None] = {names[path]: to_text(changed[path]) for path in changed.keys() - numbers}
        with self._lock:
            trial = self._trials[trial_id]
            if lineage <= trial.lineage:
                return False
            if new := trial.logged.take(step, metrics):
                self._outbox.put(Points(trial_id, step, _now_ms(), new))
            if others:
                self._outbox.put(Tags(trial_id, others))
            self._outbox.put(GoneBack(trial_id, step))  # last: what was only begun when the driver died is done again
            trial.go_back(step)
            return True

    def lineage(self, trial_id: str) -> int:
        """How often a trial has gone on from another one's state, as far as is recorded."""
        with self._lock:
            return self._trials[trial_id].lineage

    def occupy(self, trial_id: str, spans: Sequence[Span]) -> None:
        """When and on which workers a trial has trained so far, of all its attempts."""
        self._outbox.put(Tags(trial_id, {constants.TAG_SPANS: to_tag(spans)}))

    def checkpoint(self, trial_id: str, path: str, *kinds: CheckpointKind, held: str | None = None) -> None:
        """A trial has a new best or last checkpoint, or one that is both.

        Args:
            trial_id: A started trial.
            path: Its folder.
            kinds: Of which kinds it is; it replaces the ones before.
            held: A folder with the same files that stays until they are copied; then it is removed.
        """
        assert trial_id in self._trials, f"trial {trial_id} was not started"
        if self._checkpoints == "copy":
            folder = held if held is not None and Path(held).is_dir() else path
            self._store(
                *(Artifact(trial_id, f"{constants.CHECKPOINT_ARTIFACTS}/{kind}", folder=folder) for kind in kinds)
            )
        elif self._checkpoints == "reference":
            self._outbox.put(Tags(trial_id, {TAGS[kind]: as_uri(path) for kind in kinds}))

    def failed(self, trial_id: str, failures: Sequence[FailedAttempt]) -> None:
        """Attempts of a trial have failed: all of them so far."""
        self._outbox.put(Tags(trial_id, {constants.TAG_FAILURES: failures_to_tag(failures)}))

    def attach_to_trial(self, trial_id: str, name: str, text: str) -> None:
        """Add a text artifact to a trial's run.

        Args:
            trial_id: A started trial.
            name: Path of the artifact; it replaces an earlier one.
            text: What it holds.
        """
        self._store(Artifact(trial_id, name, text=text))

    def attach_logs(self, trial_id: str, folder: Path) -> None:
        """Add the logs of a trial's workers to its run, with secrets hidden.

        Args:
            trial_id: A trial that has ended.
            folder: Of its logs.
        """
        self._store(Artifact(trial_id, LOGS, folder=str(folder)))

    def end_trial(
        self,
        trial_id: str,
        state: str,
        steps: int,
        attempt: int,
        error: str | None = None,
    ) -> None:
        """A trial has ended.

        Args:
            trial_id: A started trial.
            state: finished, pruned, stopped or failed.
            steps: Optimizer steps done.
            attempt: How many times it was started.
            error: Why it failed; its last line is shown.
        """
        tags: dict[str, str | None] = {
            constants.TAG_STATE: state,
            constants.TAG_STEPS: str(steps),
            constants.TAG_ATTEMPT: str(attempt),
        }
        with self._lock:
            trial = self._trials[trial_id]
            if error:
                tags[constants.TAG_ERROR] = error.strip().splitlines()[-1][:1000]
                trial.failed_before = True
            self._outbox.put(Tags(trial_id, tags))
            self._outbox.put(Status(trial_id, TRIAL_STATUS[state], _now_ms()))
            if state in ("finished", "pruned"):
                trial.logged.close()

    # --- inside ------------------------------------------------------------------------------------------------

    def _create(self, config_yaml: str, command: str) -> MlflowIds:
        if self._parents():
            raise UserError(
                f"a sweep named {self._sweep!r} exists already in {redact_uri(self._uri)}; choose another --name"
            )
        self._link.give_up_after(OPEN_WITHIN_S)  # that has its own limits
        experiment_id = self._link.call(self._experiment_id)
        tags = {
            "mlflow.user": user(),
            "mlflow.source.name": "python -m sweeps",
            "mlflow.source.type": "LOCAL",
            "mlflow.note.content": self._description,
            constants.TAG_KIND: "sweep",
            constants.TAG_SWEEP: self._sweep,
            constants.TAG_CONF: self._conf,
            constants.TAG_STATE: "running",
            constants.TAG_METRIC: _one_or_list(self._objectives.metrics),
            constants.TAG_MODE: _one_or_list(self._objectives.modes),
            constants.TAG_COMMAND: command,
            constants.TAG_FOLDER: str(self._folder),
            constants.TAG_HEARTBEAT: _now(),
        }
        tags |= self._commit | self._tags
        create = partial(self._client.create_run, experiment_id, _now_ms(), tags, run_name=self._sweep)
        run_id = self._link.create_once(
            find=lambda: next((run.run_id for run in self._parents()), None),
            create=lambda: str(create().info.run_id),
        )
        self._outbox.adopt(PARENT, run_id)
        self.record_config(config_yaml)
        return MlflowIds(tracking_uri=self._uri, experiment_id=experiment_id, run_id=run_id)

    def _adopt(self) -> MlflowIds:
        sweep = load_sweep(self._uri, self._sweep)
        self._link.give_up_after(OPEN_WITHIN_S)  # that has its own limits
        self._ids = sweep.mlflow
        self._outbox.adopt(PARENT, self._ids.run_id)
        for trial in sweep.trials:
            self._outbox.adopt(trial.trial, trial.run_id)
        self._deliver_what_was_left()
        sweep = load_sweep(self._uri, self._sweep)
        for trial in sweep.trials:
            self._trials[trial.trial] = _Run(_values(trial), trial.steps, trial.error is not None)
        self._standing.adopt(sweep)
        self._go_on_storing(Move(Path(sweep.tags.get(constants.TAG_FOLDER, self._folder)), self._folder))
        now: dict[str, str | None] = {
            constants.TAG_STATE: "running",
            constants.TAG_HEARTBEAT: _now(),
            constants.TAG_FOLDER: str(self._folder),
        }
        self._outbox.put(Tags(PARENT, now))
        self._outbox.put(Status(PARENT, "RUNNING"))
        return sweep.mlflow

    def _deliver_what_was_left(self) -> None:
        said = monotonic()
        while self._outbox.deliver():
            if monotonic() - said > SAY_EVERY_S:
                said = monotonic()
                left = self._journal.end - self._journal.position
                logger.warning("what an earlier session left goes to MLflow: %.1f MB to go", left / 1e6)

    def _go_on_storing(self, move: Move) -> None:
        for artifact in self._read_journal():
            if artifact.folder is not None and move:
                self._store(replace(artifact, folder=move.path(artifact.folder)))
            else:
                self._copier.submit(artifact)
        if move:
            for run in fetch_runs(self._uri, {constants.TAG_SWEEP: self._sweep, constants.TAG_KIND: "trial"}):
                if places := move.named_by(run):
                    self._outbox.put(Tags(run.tags[constants.TAG_TRIAL], places))

    def _read_journal(self) -> list[Artifact]:
        """Find out which steps are recorded already; returns the artifacts that never came to be stored."""
        waiting: dict[tuple[str, str], Artifact] = {}
        for entry in self._journal.entries():
            trial = self._trials.get(entry.key)
            match entry:
                case Points(key, step, _, metrics) if key == PARENT:
                    self._standing.logged.take(step, metrics)
                case Points(_, step, _, metrics) if trial is not None:
                    trial.logged.take(step, metrics)
                case GoneBack(_, step) if trial is not None:
                    trial.go_back(step)
                case Artifact(key, name):
                    waiting[key, name] = entry
                case Stored(key, name, folder) if (key, name) in waiting and waiting[key, name].folder == folder:
                    del waiting[key, name]
        return list(waiting.values())

    def _store(self, *artifacts: Artifact) -> None:
        for artifact in artifacts:
            self._outbox.put(artifact)
        self._copier.submit(*artifacts)

    def _stored(self, artifact: Artifact, uri: str | None) -> None:
        which = artifact.name.removeprefix(f"{constants.CHECKPOINT_ARTIFACTS}/")
        for kind, tag in TAGS.items():
            if uri is not None and which == kind:
                self._outbox.put(Tags(artifact.key, {tag: uri}))
        self._outbox.put(Stored(artifact.key, artifact.name, artifact.folder))

    def _parents(self) -> list[RawRun]:
        return fetch_runs(self._uri, {constants.TAG_SWEEP: self._sweep, constants.TAG_KIND: "sweep"})

    def _experiment_id(self) -> str:
        found = self._client.get_experiment_by_name(self._experiment)
        if found is not None:
            return str(found.experiment_id)
        return str(self._client.create_experiment(self._experiment, artifact_location(self._uri, self._experiment)))

    def _beat(self) -> None:
        self._client.set_tag(self._ids.run_id, constants.TAG_HEARTBEAT, _now())

    def _summarise(self, status: str) -> None:
        """The table and the description; a sweep is whole without them, so a failure is only said."""
        try:
            sweep = load_sweep(self._uri, self._sweep)
            run_id = self._ids.run_id
            table, text = trials_table(sweep), note(sweep, status, self._description)
            self._copier_link.call(partial(self._client.log_text, run_id, table, constants.TRIALS_ARTIFACT))
            shown = json.dumps([{"path": constants.TRIALS_ARTIFACT, "type": "table"}])
            self._link.call(partial(self._client.set_tag, run_id, "mlflow.loggedArtifacts", shown))
            self._link.call(partial(self._client.set_tag, run_id, "mlflow.note.content", text))
        except Exception as error:  # noqa: BLE001 - MLflow's and the database's own errors too
            logger.warning("the summary of sweep %s could not be written to MLflow: %s", self._sweep, error)


def _one_or_list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else json.dumps(names)


def _values(trial: TrialRecord) -> Values | None:
    return trial.values or (None if trial.value is None else (trial.value,))


def _now() -> str:
    return f"{time.time():.3f}"


def _now_ms() -> int:
    return int(time.time() * 1000)
