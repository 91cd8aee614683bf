"""Recording of a running sweep in MLflow without delaying it: everything is written to the journal in the sweep's
folder, from which threads deliver it."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from sweeps import constants
from sweeps.compose.dotted import find
from sweeps.errors import StorageFailed, TrackingUnreachable, UnknownName, UserError
from sweeps.provenance.code import git_commit
from sweeps.storage.location import is_remote
from sweeps.texts.uri_passwords import redact_uri
from sweeps.tracking.client import connect
from sweeps.tracking.control_channel import clear_request
from sweeps.tracking.delivery import Delivery, Remaining
from sweeps.tracking.fold import Fold
from sweeps.tracking.held_checkpoints import held_source, is_held, release_all
from sweeps.tracking.journal import (
    JOURNAL_FILE,
    PARENT,
    Artifact,
    Entry,
    GoneBack,
    Journal,
    NewRun,
    Points,
    Status,
    Stored,
    Tags,
)
from sweeps.tracking.mlflow_texts import note, trials_table
from sweeps.tracking.reader import fetch_sweep, ids_of, one_each, record_of
from sweeps.tracking.record import MlflowIds, SweepRecord
from sweeps.tracking.retry import GaveUp, Refused
from sweeps.tracking.store import RawRun
from sweeps.tracking.sweep_run import SweepInfo, create_lost_run, create_parent_run, heartbeat, own_start
from sweeps.tracking.sweep_status import Front, StatusWriter
from sweeps.tracking.trial_recorder import TrialRecorder
from sweeps.tracking.uris import as_uri
from sweeps.tracking.values import now_ms, read_tag

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)

RUN_STATUS = {"finished": "FINISHED", "stopped": "KILLED", "interrupted": "KILLED", "failed": "FAILED"}
"""MLflow's status of the parent run by the state of the sweep."""


class Recorder:
    """Writer of one running sweep's record. Only ``open`` and ``close`` wait for MLflow.

    All other methods raise ``StorageFailed`` if the sweep's folder cannot be written.
    """

    def __init__(
        self,
        client: MlflowClient,
        delivery: Delivery,
        ids: MlflowIds,
        sweep: SweepInfo,
        trials: TrialRecorder,
    ) -> None:
        """Called by ``open``; use that instead."""
        self._client, self._delivery, self._sweep = client, delivery, sweep
        self._status = StatusWriter(sweep.objectives, delivery.put)
        self.lost_entries = bool(delivery.journal.lost_lines)
        """Whether damage has made entries of the journal unreadable."""
        self.ids = ids
        """The sweep's ids in MLflow."""
        self.earlier: SweepRecord | None = None
        """Record of earlier sessions; None in a new sweep."""
        self.earlier_metrics: Mapping[str, Mapping[str, float]] = {}
        """The latest value of each metric that earlier drivers recorded, by trial and name."""
        self.trials = trials
        """Recorder of the sweep's trials."""

    @classmethod
    def open(
        cls,
        uri: str,
        experiment: str,
        sweep: SweepInfo,
        *,
        checkpoints: Literal["copy", "reference", "none"] = "copy",
        resume: bool = False,
    ) -> Recorder:
        """Create the sweep's parent run; with ``resume``, continue the existing runs from the state in the journal, and
        deliver the entries that earlier drivers left there, or all entries if MLflow has lost the sweep.

        Args:
            uri: Tracking URI.
            experiment: Name of the experiment; created if there is none.
            sweep: The sweep.
            checkpoints: Upload checkpoints as artifacts, record only their URIs, or neither.
            resume: Whether to continue an existing sweep.

        Raises:
            TrackingUnreachable: MLflow does not answer.
            UserError: A sweep of that name already exists, or does not exist with ``resume``.
            StorageFailed: The sweep's folder cannot be written.
        """
        if resume and not Journal.is_in(sweep.folder):
            raise UserError(
                f"{sweep.name}: {sweep.folder / JOURNAL_FILE} is missing, so it is unknown what MLflow has "
                "received; restore it, or start a new sweep with search.warm_start"
            )
        client = connect(uri)
        journal = Journal(sweep.folder, sweep.copy)
        commit = {"mlflow.source.git.commit": found} if (found := git_commit()) else {}
        try:
            stored = None
            if resume:
                try:
                    stored = fetch_sweep(uri, sweep.name, own_start(sweep.folder))
                except UnknownName:
                    logger.warning("MLflow has lost %s, which is recorded again from its folder", sweep.name)
                    journal.advance(0)  # first: this driver may be killed before everything is delivered
                    create_lost_run(client, uri, experiment, sweep, commit)
                    stored = fetch_sweep(uri, sweep.name, own_start(sweep.folder))
            ids = ids_of(uri, stored[0]) if stored else create_parent_run(client, uri, experiment, sweep, commit)
            delivery = Delivery(client, journal, ids)
            trials = TrialRecorder(delivery, ids, sweep, commit, checkpoints)
            recorder = cls(client, delivery, ids, sweep, trials)
            if stored:
                recorder.restore(*stored)
            # Recorded again when a sweep is resumed, since it may have been extended.
            recorder.record_config(sweep.config_yaml, sweep.planned, sweep.points)
        except GaveUp as error:
            # MLflow may have the run though its answer was lost: this starts the sweep or continues it.
            again = "try again" if resume else f"`resume {sweep.name}` continues it; if there is none, try again"
            raise TrackingUnreachable(f"tracking.uri={redact_uri(uri)} stopped answering; {again}") from error
        except Refused as error:
            raise UserError(f"MLflow at tracking.uri={redact_uri(uri)} refuses the sweep: {error}") from error
        delivery.start()
        return recorder

    def record_config(self, config_yaml: str, planned: int | None = None, points: int | None = None) -> None:
        """Record the sweep's config and number of trials, replacing earlier ones.

        Args:
            config_yaml: The composed config.
            planned: Number of trials that the sweep can start; default: the config's ``search.num_trials``.
            points: Number of all points of a small space or grid; None for any other space.
        """
        self._delivery.upload(Artifact(PARENT, constants.CONFIG_ARTIFACT, text=config_yaml))
        planned = planned or find(yaml.safe_load(config_yaml), "search.num_trials")
        if isinstance(planned, int):
            self._delivery.put(
                Tags(PARENT, {constants.TAG_PLANNED: str(planned), constants.TAG_POINTS: str(points or "")})
            )

    def update(self, counts: Mapping[str, int], front: Front, time: Mapping[str, Any]) -> None:
        """Record the sweep's status; may be called often. The time is that of ``UsageMeter.summary``."""
        self._status.update(counts, front, time)

    def attach(self, files: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Add text artifacts, by their paths, and tags to the parent run."""
        for name, text in files.items():
            self._delivery.upload(Artifact(PARENT, name, text=text))
        self._delivery.put(Tags(PARENT, dict(tags)))

    def close(
        self,
        status: str,
        patience_s: float = 60,
        total_s: float = float("inf"),
        while_waiting: Callable[[], None] = lambda: None,
    ) -> Remaining:
        """Deliver everything, the table of trials and the summary, and end the threads.

        Args:
            status: Status of the sweep: finished, stopped, failed or interrupted.
            patience_s: Give up after this many seconds in which MLflow has received nothing.
            total_s: Give up after this many seconds in total.
            while_waiting: Called again and again while MLflow receives the rest.

        Returns:
            The part of the record that MLflow has not received.
        """
        self._delivery.give_up_after(patience_s, total_s)
        with suppress(StorageFailed):  # at the end of a sweep on a full disk, which was reported before
            self._status.write_latest()
        self._delivery.flush(while_waiting)  # at once, as artifacts wait for the runs that it creates
        artifacts = self._delivery.finish_uploads(while_waiting)
        with suppress(StorageFailed):
            self._delivery.put(Tags(PARENT, {constants.TAG_STATE: status}))
            self._delivery.put(Status(PARENT, RUN_STATUS[status], now_ms()))
        if self._delivery.flush(while_waiting):
            self._write_summary(status)
        remaining = self._delivery.close(artifacts)
        if not remaining:
            release_all(self._sweep.folder / "trials")
        return remaining

    def restore(self, parent: RawRun, stored: Sequence[RawRun]) -> None:
        """Continue the record of earlier drivers, given the sweep's own run and those of its trials, which may lack
        entries of the journal."""
        fold, uploads = self._replay(parent, stored)
        self.earlier = record = record_of(self.ids.tracking_uri, fold.parent, fold.trials.values())
        self.earlier_metrics = fold.metrics
        with suppress(Refused):  # a call whose answer was lost has deleted it
            self._delivery.retrier.call(partial(clear_request, record))
        self.trials.restore(record.all_trials)
        marked = {trial for trial, run in fold.trials.items() if constants.TAG_PARETO in run.tags}
        self._status.restore(parent.tags, marked)
        location = self._sweep.location
        before = record.tags.get(constants.TAG_FOLDER, location)
        for artifact in uploads:
            self._continue_upload(artifact, before, fold.trials.get(artifact.key))
        for trial, run in fold.trials.items():
            uris = {tag: run.tags[tag] for tag in constants.CHECKPOINT_TAGS.values() if tag in run.tags}
            moved = {tag: _moved(uri, as_uri(before), as_uri(location)) for tag, uri in uris.items()}
            if moved != uris:
                self._delivery.put(Tags(trial, dict(moved)))
        now: dict[str, str | None] = {
            constants.TAG_STATE: "running",
            constants.TAG_HEARTBEAT: heartbeat(),
            constants.TAG_FOLDER: location,
        }
        self._delivery.put(Tags(PARENT, now))
        self._delivery.put(Status(PARENT, "RUNNING"))

    def _replay(self, parent: RawRun, stored: Sequence[RawRun]) -> tuple[Fold, list[Artifact]]:
        """Apply the journal's entries, and find the steps that are already recorded; also return the artifacts that
        were not uploaded."""
        journal = self._delivery.journal
        in_store = one_each(stored)
        fold = Fold(parent, in_store)
        waiting: dict[tuple[str, str], Artifact] = {}
        for entry in journal.entries(end=journal.position):
            if isinstance(entry, Points) or not self.lost_entries:  # else MLflow has more than the journal
                fold.take(entry)
            self._replay_entry(entry, waiting)
        if _wall_s(parent) < _wall_s(fold.parent):  # the store was restored from a backup
            name = self._sweep.name
            logger.warning("MLflow has an older record of %s than it received; all is sent again", name)
            journal.advance(0)
            self.trials.restore(())  # forgets what was replayed
            return self._replay(parent, stored)
        fold.delete(fold.trials.keys() - in_store.keys())  # a person has deleted them in MLflow
        new = set()
        for entry in journal.entries(journal.position):
            fold.take(entry)
            self._replay_entry(entry, waiting)
            if isinstance(entry, NewRun):
                new.add(entry.key)
        # A new trial may be known as the best one and have no run yet, if an earlier driver was killed in between.
        self._delivery.adopt({trial: run.run_id for trial, run in in_store.items() if run.run_id or trial not in new})
        return fold, list(waiting.values())

    def _replay_entry(self, entry: Entry, waiting: dict[tuple[str, str], Artifact]) -> None:
        match entry:
            case Points(key) if key == PARENT:
                self._status.replay(entry)
            case Points() | GoneBack():
                self.trials.replay(entry)
            case Artifact(key, name):
                waiting[key, name] = entry
            case Stored(key, name, folder) if (key, name) in waiting and waiting[key, name].folder == folder:
                if self._delivery.journal.position:  # else MLflow has lost it
                    del waiting[key, name]

    def _continue_upload(self, artifact: Artifact, before: str, run: RawRun | None) -> None:
        """Upload an artifact that MLflow has not received, or has lost. If the content of a lost one is gone, too, its
        run has no tag that leads to it.

        Args:
            artifact: The artifact.
            before: Place where the sweep's folder was.
            run: The artifact's run, if it is a trial's.
        """
        is_lost = not self._delivery.journal.position
        folder = None if artifact.folder is None else _moved(artifact.folder, before, self._sweep.location)
        if not is_lost and folder == artifact.folder:
            self._delivery.resume_upload(artifact)
        elif not is_lost or folder is None or (folder := _content(folder)) is not None:
            self._delivery.upload(replace(artifact, folder=folder))
        else:
            tag = constants.CHECKPOINT_TAGS.get(Path(artifact.name).name)
            if tag is not None and run is not None and not run.tags.get(tag, "").startswith(f"runs:/{run.run_id}/"):
                self._delivery.put(Tags(artifact.key, {tag: None}))

    def _write_summary(self, status: str) -> None:
        """Write the table of trials and the description. Since the record is complete without them, a failure is only
        logged."""
        run_id, delivery = self.ids.run_id, self._delivery
        try:
            record = record_of(self.ids.tracking_uri, *delivery.retrier.call(self._fetch))
            table, text = trials_table(record), note(record, status)
            delivery.upload_retrier.call(partial(self._client.log_text, run_id, table, constants.TRIALS_ARTIFACT))
            tables = json.dumps([{"path": constants.TRIALS_ARTIFACT, "type": "table"}])
            delivery.retrier.call(partial(self._client.set_tag, run_id, "mlflow.loggedArtifacts", tables))
            delivery.retrier.call(partial(self._client.set_tag, run_id, constants.TAG_DESCRIPTION, text))
        except Exception as error:  # noqa: BLE001 - MLflow's and the database's own errors too
            logger.warning("the summary of sweep %s could not be written to MLflow: %s", self._sweep.name, error)

    def _fetch(self) -> tuple[RawRun, list[RawRun]]:
        """Read the sweep's own run, and the runs of its trials.

        Raises:
            Refused: A person has deleted its run.
        """
        try:
            return fetch_sweep(self.ids.tracking_uri, self._sweep.name, own_start(self._sweep.folder))
        except UnknownName as error:
            raise Refused(str(error)) from error


def _wall_s(parent: RawRun) -> float:
    """Return the recorded duration of a sweep, given its own run; 0 if there is none, infinity if a person has edited
    it."""
    if constants.TAG_TIME not in parent.tags:
        return 0.0
    return read_tag(parent.tags[constants.TAG_TIME], lambda written: float(written["wall_s"]), math.inf)


def _content(folder: str) -> str | None:
    """Return the folder with the content of an artifact, after links to a checkpoint were removed the checkpoint
    itself; None if that is gone, too."""
    if is_remote(folder) or Path(folder).is_dir():
        return folder
    source = held_source(folder) if is_held(folder) else None
    return str(source) if source is not None and source.is_dir() else None


def _moved(path: str, before: str, after: str) -> str:
    """Return the path or URI of a file after the sweep's folder was moved; unchanged if it is not in the folder."""
    return after + path.removeprefix(before) if path.startswith(f"{before}/") else path
