"""Delivery of a sweep's record to MLflow by a journal and two threads, one for metrics and one for artifacts.

Callers only wait until an entry is in the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

from sweeps import constants
from sweeps.tracking.artifact_uploader import ANSWER_WITHIN_S, ArtifactUploader
from sweeps.tracking.journal import Artifact, Entry, Journal, Stored, Tags
from sweeps.tracking.outbox import Outbox
from sweeps.tracking.record import MlflowIds
from sweeps.tracking.retry import Retrier
from sweeps.tracking.sweep_run import OPEN_WITHIN_S, heartbeat

if TYPE_CHECKING:
    from mlflow import MlflowClient


@dataclass(frozen=True)
class Remaining:
    """Part of a sweep's record that MLflow has not received and the journal keeps."""

    points: int
    """Number of metric values that MLflow has not received."""
    artifacts: int
    entries: bool
    """Whether the journal has any entry that MLflow has not received."""

    def __bool__(self) -> bool:
        return self.entries or self.artifacts > 0


class Delivery:
    """Journal of a sweep, with the threads that deliver it from ``start`` to ``close``.

    ``put`` and ``upload`` raise ``StorageFailed`` if the journal cannot be written.
    """

    def __init__(self, client: MlflowClient, journal: Journal, ids: MlflowIds) -> None:
        self._client, self._run_id = client, ids.run_id
        self._earlier_end, self._is_started = journal.end, False
        """End of the earlier sessions' entries in the journal, and whether entries are now delivered continuously."""
        self._order = Lock()
        """Held while artifacts are written to the journal and submitted, or marked as stored. Without it, the mark of
        an older text or log could follow a newer one of the same name in the journal and apply to that one."""
        self.journal = journal
        self.retrier = Retrier(ids.tracking_uri, "writing to MLflow", self._beat, self._beat)
        self.upload_retrier = Retrier(
            ids.tracking_uri, "writing artifacts to MLflow", own_run=self._beat, connect_s=ANSWER_WITHIN_S
        )
        self.retrier.give_up_after(OPEN_WITHIN_S)
        self._outbox = Outbox(client, self.retrier, journal, ids, self._beat)
        self._uploader = ArtifactUploader(client, self.upload_retrier, self._outbox.wait_for_run, self._uploaded)

    def put(self, *entries: Entry) -> None:
        """Write entries to the journal, from which they are delivered soon."""
        self._outbox.put(*entries)

    def upload(self, *artifacts: Artifact) -> None:
        """Write artifacts to the journal, and upload them soon."""
        with self._order:
            for artifact in artifacts:
                self._outbox.put(artifact)
            self._uploader.submit(*artifacts)

    def resume_upload(self, artifact: Artifact) -> None:
        """Upload an artifact from an earlier session's journal."""
        self._uploader.submit(artifact)

    def adopt(self, run_ids: Mapping[str, str]) -> None:
        """Set MLflow's ids of the trials whose runs exist."""
        self._outbox.adopt(run_ids)

    def start(self) -> None:
        """Start delivering entries continuously. From now on, calls are repeated without limit."""
        self.retrier.give_up_after(float("inf"))
        self._is_started = True
        self._outbox.start()

    def give_up_after(self, patience_s: float, total_s: float) -> None:
        """Limit the time of all further calls: the seconds without a successful call, and those in total."""
        self.retrier.give_up_after(patience_s, total_s)
        self.upload_retrier.give_up_after(patience_s, total_s)

    def finish_uploads(self, while_waiting: Callable[[], None]) -> int:
        """Upload all waiting artifacts and end the uploading thread; return how many could not be uploaded. Meanwhile
        ``while_waiting`` is called again and again."""
        started = monotonic()
        remaining = self._uploader.close(while_waiting)
        self.retrier.extend(monotonic() - started)
        return remaining

    def flush(self, while_waiting: Callable[[], None] = lambda: None) -> bool:
        """Deliver all entries that are in the journal now; return whether MLflow has received them. Meanwhile
        ``while_waiting`` is called again and again."""
        return self._outbox.flush(while_waiting)

    def close(self, artifacts: int) -> Remaining:
        """End the thread of the outbox, and close the journal if nothing remains; ``artifacts`` is the number of those
        that could not be uploaded."""
        points = self._outbox.close()
        remaining = Remaining(points, artifacts, entries=self.journal.position < self.journal.end)
        if remaining:  # a call that has not ended yet may still want to write, perhaps beside the sweep's next driver
            self.journal.end_writing()
        else:
            self.journal.close()
        return remaining

    def _beat(self) -> None:
        self._client.set_tag(self._run_id, constants.TAG_HEARTBEAT, heartbeat())
        if self._is_started and self.journal.position < self._earlier_end:  # that entry comes after the rest
            self._client.set_tag(self._run_id, constants.TAG_STATE, "running")

    def _uploaded(self, artifact: Artifact, uri: str | None) -> None:
        tag = constants.CHECKPOINT_TAGS.get(artifact.name.removeprefix(f"{constants.CHECKPOINT_ARTIFACTS}/"))
        if tag is not None:  # None if it cannot be uploaded: MLflow has at most an earlier checkpoint
            self._outbox.put(Tags(artifact.key, {tag: uri}))
        with self._order:
            if not self._uploader.is_waiting(artifact.key, artifact.name):
                self._outbox.put(Stored(artifact.key, artifact.name, artifact.folder))
