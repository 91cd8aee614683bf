"""Records a running sweep in MLflow without ever making it wait."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sweeps import constants
from sweeps.errors import TrackingUnreachable, UserError
from sweeps.objectives import Objectives, Values
from sweeps.origin.code import git_commit
from sweeps.origin.machine import user
from sweeps.tracking.client import artifact_location, connect
from sweeps.tracking.copier import TAGS, CheckpointCopier, Which
from sweeps.tracking.link import GaveUp, Link, Refused
from sweeps.tracking.outbox import NewRun, Outbox
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import MlflowIds, TrialRecord
from sweeps.tracking.spans import Span
from sweeps.tracking.spans import to_text as to_tag
from sweeps.tracking.store import RawRun, fetch_runs
from sweeps.tracking.summary import note, run_name, trials_table
from sweeps.tracking.uris import shown
from sweeps.tracking.values import metric_name, to_text, written

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)

PARENT = ""
"""The parent run's key in the outbox; trials have their ids."""
OPEN_WITHIN_S = 30
HEARTBEAT_S = 10.0
PARENT_EVERY_S = 1.0
TRIAL_STATUS = {"finished": "FINISHED", "pruned": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
"""State of a trial -> MLflow's status of its run: pruned is no fault."""
SWEEP_STATUS = {"finished": "FINISHED", "stopped": "KILLED", "interrupted": "KILLED", "failed": "FAILED"}


@dataclass
class _Trial:
    """What the recorder remembers of a trial."""

    values: Values | None = None
    steps: int = 0
    failed_before: bool = False
    adopted: bool = False
    """Its run is of an earlier session, and nothing was written to it in this one."""


class Recorder:
    """One sweep's way into MLflow. ``open`` and ``close`` wait for MLflow, nothing else does."""

    def __init__(
        self,
        uri: str,
        experiment: str,
        *,
        sweep: str,
        conf: str,
        objectives: Objectives,
        checkpoints: Literal["copy", "reference", "none"] = "copy",
        folder: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing is written before ``open``.

        Args:
            uri: Tracking URI.
            experiment: Name of the experiment; created if there is none.
            sweep: The sweep's name.
            conf: The ``conf=`` that it was started with.
            objectives: What it optimises.
            checkpoints: Copy checkpoints into the artifacts, write down only where they are, or neither.
            folder: Where its study and its checkpoints are, for those who go on with it.
            tags: Of the parent run, besides its own.
        """
        self._uri, self._experiment = uri, experiment
        self._sweep, self._conf = sweep, conf
        self._objectives = objectives
        self._checkpoints = checkpoints
        self._folder = folder
        self._tags = dict(tags or {})
        self._trials: dict[str, _Trial] = {}
        self._best_tags: set[str] = set()
        self._front: set[str] = set()
        self._description = ""
        self._commit: dict[str, str] = {}
        self._client: MlflowClient
        self._link: Link
        self._copier_link: Link
        self._outbox: Outbox
        self._copier: CheckpointCopier
        self._ids: MlflowIds

    # --- the sweep ---------------------------------------------------------------------------------------------

    def open(self, config_yaml: str, command: str, description: str, *, resume: bool = False) -> MlflowIds:
        """Create the parent run, or with ``resume`` go on with the one that exists and with its trials' runs.

        Args:
            config_yaml: The composed config.
            command: The command line that starts it.
            description: What the config says of itself, in Markdown.
            resume: The sweep exists.

        Raises:
            TrackingUnreachable: MLflow does not answer.
            UserError: A sweep of that name exists already, or with ``resume`` does not.
        """
        self._client = connect(self._uri)
        self._link = Link(self._uri, "writing to MLflow", self._probe)
        self._copier_link = Link(self._uri, "copying checkpoints to MLflow", self._probe)
        self._link.give_up_at(time.monotonic() + OPEN_WITHIN_S)
        self._description = description
        self._commit = {"mlflow.source.git.commit": commit} if (commit := git_commit()) else {}
        self._outbox = Outbox(self._client, self._link, self._beat, HEARTBEAT_S)
        self._copier = CheckpointCopier(self._client, self._copier_link, self._outbox.wait_for_run, self._copied)
        try:
            self._ids = self._adopt() if resume else self._create(config_yaml, command)
        except GaveUp as error:
            raise TrackingUnreachable(f"tracking.uri={shown(self._uri)} stopped answering; try again") from error
        except Refused as error:
            raise UserError(f"MLflow at tracking.uri={shown(self._uri)} refuses the sweep: {error}") from error
        self._link.give_up_at(float("inf"))
        self._outbox.start()
        return self._ids

    @property
    def ids(self) -> MlflowIds:
        """Where the sweep is in MLflow, once it is open."""
        return self._ids

    def update(
        self,
        counts: Mapping[str, int],
        front: Sequence[tuple[str, Values, Mapping[str, Any]]],
        time: Mapping[str, float],
    ) -> None:
        """Write how the sweep stands; may be called often.

        Args:
            counts: Trials by state.
            front: Id, values and parameters of the best trial; of several objectives, those of the Pareto front.
            time: ``wall_s``, ``train_s``, ``goodput``, and what trials held in ``cpu_s`` and ``gpu_s``.
        """
        tags: dict[str, str | None] = dict.fromkeys(self._best_tags)
        if front:
            trials = [trial for trial, _, _ in front]
            _, values, params = front[0]
            several = len(values) > 1
            tags |= {
                constants.TAG_BEST_TRIAL: json.dumps(trials) if several else trials[0],
                constants.TAG_BEST_VALUE: written(values),
            }
            if not several:
                tags |= {constants.TAG_BEST_PARAMETER_PREFIX + path: to_text(each) for path, each in params.items()}
            ended = sum(count for state, count in counts.items() if state != "running")
            self._outbox.log(PARENT, ended, _now_ms(), self._best_metrics([values for _, values, _ in front]))
            if several:
                self._mark_front(set(trials))
        self._best_tags = {key for key, text in tags.items() if text is not None}
        tags |= {constants.TAG_COUNTS: json.dumps(dict(counts)), constants.TAG_TIME: json.dumps(dict(time))}
        tags[constants.TAG_HEARTBEAT] = _now()
        self._outbox.tag(PARENT, tags)

    def attach(self, files: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Add text artifacts, by their paths, and tags to the parent run."""
        self._outbox.describe(PARENT, {}, files)
        self._outbox.tag(PARENT, dict(tags))

    def close(self, status: str, timeout_s: float = 60) -> int:
        """Write everything that waits, the table of trials and the summary, and end; how many points were left.

        Args:
            status: Of the sweep: finished, stopped, failed or interrupted.
            timeout_s: Give up after this.
        """
        deadline = time.monotonic() + timeout_s
        self._link.give_up_at(deadline)
        self._copier_link.give_up_at(deadline)
        folders = self._copier.close(deadline)
        written = self._outbox.flush(deadline - time.monotonic())
        self._outbox.tag(PARENT, {constants.TAG_STATE: status, constants.TAG_HEARTBEAT: _now()})
        self._outbox.status(PARENT, SWEEP_STATUS[status], _now_ms())
        if written and self._outbox.flush(deadline - time.monotonic()):
            self._summarise(status)
        points = self._outbox.close(max(0.0, deadline - time.monotonic()))
        if points or folders:
            logger.warning(
                "MLflow at %s did not take everything within %.0f s: %d points and %d checkpoints are missing from "
                "sweep %s",
                shown(self._uri),
                timeout_s,
                points,
                folders,
                self._sweep,
            )
        return points

    # --- its trials --------------------------------------------------------------------------------------------

    def start_trial(self, trial_id: str, params: Mapping[str, Any], config_yaml: str, attempt: int) -> None:
        """A trial starts, or starts again: then its run goes on.

        Args:
            trial_id: Unique within the sweep.
            params: Its point: dotted paths and values.
            config_yaml: Its own config.
            attempt: 1 for the first.
        """
        tags: dict[str, str | None] = {constants.TAG_STATE: "running", constants.TAG_ATTEMPT: str(attempt)}
        texts = {path: to_text(value) for path, value in params.items()}
        trial = self._trials.get(trial_id)
        if trial is None:
            identity = {"mlflow.parentRunId": self._ids.run_id, constants.TAG_TRIAL: trial_id}
            new = NewRun(
                experiment_id=self._ids.experiment_id,
                name=run_name(trial_id, params),
                tags={
                    **identity,
                    "mlflow.user": user(),
                    constants.TAG_KIND: "trial",
                    constants.TAG_SWEEP: self._sweep,
                    constants.TAG_CONF: self._conf,
                    **self._commit,
                    **{key: text for key, text in tags.items() if text is not None},
                },
                started_ms=_now_ms(),
                identity=identity,
            )
            self._trials[trial_id] = _Trial()
            self._outbox.create(trial_id, new)
            self._outbox.describe(trial_id, texts, {constants.CONFIG_ARTIFACT: config_yaml})
            return
        if trial.adopted:  # the earlier session may have died between creating its run and describing it
            trial.adopted = False
            self._outbox.describe(trial_id, texts, {constants.CONFIG_ARTIFACT: config_yaml})
        if trial.failed_before:
            tags[constants.TAG_ERROR] = None
            trial.failed_before = False
        self._outbox.tag(trial_id, tags)
        self._outbox.status(trial_id, "RUNNING")

    def log(self, trial_id: str, step: int, metrics: Mapping[str, float], timestamp_ms: int | None = None) -> None:
        """Metrics of a trial at a step. A (metric, step) that the trial has already is left out.

        Args:
            trial_id: A started trial.
            step: Optimizer steps done.
            metrics: Values by name; infinite ones are shown by MLflow as ±1.8e308.
            timestamp_ms: When they were measured; default: now.
        """
        trial = self._trials[trial_id]
        trial.steps = max(trial.steps, step)
        tags: dict[str, str | None] = {constants.TAG_STEPS: str(trial.steps)}
        values = self._objectives.values(metrics)
        if values is not None and self._objectives.improves(values, trial.values):
            trial.values = values
            tags[constants.TAG_VALUE] = written(values)
        if (violation := self._objectives.violation(metrics)) is not None:
            tags[constants.TAG_VIOLATION] = violation
        named = {metric_name(name): float(each) for name, each in metrics.items()}
        self._outbox.log(trial_id, step, _now_ms() if timestamp_ms is None else timestamp_ms, named)
        self._outbox.tag(trial_id, tags)

    def change(self, trial_id: str, step: int, changed: Mapping[str, Any]) -> None:
        """A trial goes on from a step of another one, with other values. MLflow's parameters cannot change, and stay
        the first ones: numbers become metrics ``param/train.lr``, other values tags.

        Args:
            trial_id: A started trial.
            step: Where it goes on; what it had logged beyond may be logged again.
            changed: Its new values by path.
        """
        names = {path: f"{constants.PARAMETER_PREFIX}{path}" for path in changed}
        numbers = {path for path, value in changed.items() if type(value) in (int, float)}
        metrics = {metric_name(names[path]): float(changed[path]) for path in numbers}
        self._outbox.go_back(trial_id, step)
        self._outbox.log(trial_id, step, _now_ms(), metrics)
        self._outbox.tag(trial_id, {names[path]: to_text(changed[path]) for path in changed.keys() - numbers})

    def occupy(self, trial_id: str, spans: Sequence[Span]) -> None:
        """When and on which workers a trial has trained so far, of all its attempts."""
        self._outbox.tag(trial_id, {constants.TAG_SPANS: to_tag(spans)})

    def checkpoint(self, trial_id: str, path: str, which: Which) -> None:
        """A trial has a new best or last checkpoint.

        Args:
            trial_id: A started trial.
            path: Its folder.
            which: Of which kind it is; it replaces the one before.
        """
        assert trial_id in self._trials, f"trial {trial_id} was not started"
        if self._checkpoints == "copy":
            self._copier.submit(trial_id, which, Path(path))
        elif self._checkpoints == "reference":
            self._outbox.tag(trial_id, {TAGS[which]: path})

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
        if error:
            tags[constants.TAG_ERROR] = error.strip().splitlines()[-1][:1000]
            self._trials[trial_id].failed_before = True
        self._outbox.tag(trial_id, tags)
        self._outbox.status(trial_id, TRIAL_STATUS[state], _now_ms())

    # --- inside ------------------------------------------------------------------------------------------------

    def _create(self, config_yaml: str, command: str) -> MlflowIds:
        if self._parents():
            raise UserError(
                f"a sweep named {self._sweep!r} exists already in {shown(self._uri)}; choose another --name"
            )
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
            constants.TAG_FOLDER: self._folder,
            constants.TAG_HEARTBEAT: _now(),
        }
        tags |= self._commit | self._tags
        create = partial(self._client.create_run, experiment_id, _now_ms(), tags, run_name=self._sweep)
        run_id = self._link.create_once(
            find=lambda: next((run.run_id for run in self._parents()), None),
            create=lambda: str(create().info.run_id),
        )
        self._link.call(partial(self._client.log_text, run_id, config_yaml, constants.CONFIG_ARTIFACT))
        self._outbox.adopt(PARENT, run_id, fresh=True, every_s=PARENT_EVERY_S)
        return MlflowIds(tracking_uri=self._uri, experiment_id=experiment_id, run_id=run_id)

    def _adopt(self) -> MlflowIds:
        sweep = load_sweep(self._uri, self._sweep)
        run_id = sweep.mlflow.run_id
        self._outbox.adopt(PARENT, run_id, every_s=PARENT_EVERY_S)
        self._best_tags = {
            key
            for key in sweep.tags
            if key.startswith(constants.TAG_BEST_PARAMETER_PREFIX)
            or key in {constants.TAG_BEST_TRIAL, constants.TAG_BEST_VALUE}
        }
        self._link.call(partial(self._client.update_run, run_id, status="RUNNING"))
        self._outbox.tag(PARENT, {constants.TAG_STATE: "running", constants.TAG_HEARTBEAT: _now()})
        self._front = {trial.trial for trial in sweep.front if trial.values}
        for trial in sweep.trials:
            self._outbox.adopt(trial.trial, trial.run_id)
            self._trials[trial.trial] = _Trial(_values(trial), trial.steps, trial.error is not None, adopted=True)
        return sweep.mlflow

    def _best_metrics(self, front: Sequence[Values]) -> dict[str, float]:
        """The best of each objective. Under names of their own, since the parent run stands among its trials' runs."""
        columns = zip(self._objectives.metrics, self._objectives.modes, zip(*front, strict=True), strict=True)
        return {
            metric_name(f"best/{metric}"): float(min(column) if mode == "min" else max(column))
            for metric, mode, column in columns
        }

    def _mark_front(self, front: set[str]) -> None:
        for trial in front ^ self._front:
            self._outbox.tag(trial, {constants.TAG_PARETO: "true" if trial in front else None})
        self._front = front

    def _parents(self) -> list[RawRun]:
        return fetch_runs(self._uri, {constants.TAG_SWEEP: self._sweep, constants.TAG_KIND: "sweep"})

    def _experiment_id(self) -> str:
        found = self._client.get_experiment_by_name(self._experiment)
        if found is not None:
            return str(found.experiment_id)
        return str(self._client.create_experiment(self._experiment, artifact_location(self._uri, self._experiment)))

    def _probe(self) -> None:
        self._client.search_experiments(max_results=1)

    def _beat(self) -> None:
        self._outbox.tag(PARENT, {constants.TAG_HEARTBEAT: _now()})

    def _copied(self, trial_id: str, which: Which, uri: str) -> None:
        self._outbox.tag(trial_id, {TAGS[which]: uri})

    def _summarise(self, status: str) -> None:
        """The table and the description; a sweep is whole without them, so a failure is only said."""
        try:
            sweep = load_sweep(self._uri, self._sweep)
            run_id = self._ids.run_id
            table, text = trials_table(sweep), note(sweep, status, self._description)
            self._link.call(partial(self._client.log_text, run_id, table, constants.TRIALS_ARTIFACT))
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
