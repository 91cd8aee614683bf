"""Thread that uploads text files and checkpoints as MLflow artifacts, so that large files or a slow artifact store
never delay metrics."""

from __future__ import annotations

import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sweeps.compat.mlflow import artifact_files, artifact_repository
from sweeps.constants import CHECKPOINT_TAGS
from sweeps.errors import StorageFailed
from sweeps.files.whole_files import replacing, sync
from sweeps.folders.trial_files import LOGS
from sweeps.provenance.redacted_text import redacted_log
from sweeps.storage.location import is_remote
from sweeps.storage.object_store import ObjectStore
from sweeps.tracking.client import request_limits
from sweeps.tracking.held_checkpoints import is_held, release
from sweeps.tracking.journal import Artifact
from sweeps.tracking.mlflow_characters import storable
from sweeps.tracking.retry import GaveUp, Refused, Retrier, Superseded
from sweeps.tracking.store import fetch_sqlite_artifact_uri
from sweeps.tracking.uris import local_path

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)

CheckpointKind = Literal["best", "last"]
UPLOAD_AFTER_S = 2.0
"""Seconds that a checkpoint waits before its upload for a newer one that replaces it, as often happens in a short
trial."""
TURN_S, NEXT_TURN_S = 10.0, 60.0
"""Seconds for which a failing upload is repeated while others are due, and seconds until its next turn: a file that
cannot be read must not block all other artifacts."""
ANSWER_WITHIN_S = 120
"""Maximum seconds for a server to store a file, in addition to the transfer."""
SLOWEST_STORE = 5e6
"""Bytes per second of a slow store, which also needs a second for each file."""
SERVED = ("mlflow-artifacts:", "http:", "https:")
"""Schemes of artifacts that an MLflow server stores."""
NOT_IN_ADDRESS = re.compile(r"[?#]|%[0-9A-Fa-f]{2}")
"""Parts of a file's name that an MLflow server would read as parts of a URL, so that it stored the file under another
name."""


class ArtifactUploader:
    """Uploads artifacts in the order in which they are due; of artifacts with the same run and name, only the
    newest."""

    def __init__(
        self,
        client: MlflowClient,
        retrier: Retrier,
        wait_for_run: Callable[[str, float], str | None],
        done: Callable[[Artifact, str | None], None],
    ) -> None:
        """Prepare the uploader; its thread starts with the first artifact.

        ``wait_for_run`` returns MLflow's id of a run, after waiting at most some seconds for its creation. ``done`` is
        called on the thread for each artifact, with its URI, or None if it can never be uploaded.
        """
        self._client = client
        self._retrier = retrier
        self._wait_for_run = wait_for_run
        self._done = done
        self._artifact_uris: dict[str, str] = {}
        """URIs of the artifacts of runs."""
        self._queue: dict[tuple[str, str], tuple[float, Artifact]] = {}
        """The waiting artifacts, by run and name, each with the monotonic time at which it is due for upload."""
        self._condition = threading.Condition()
        self._busy: Artifact | None = None
        self._began = 0.0
        """Monotonic time at which the current upload began."""
        self._closing = False
        self._warned = False
        self._thread = threading.Thread(target=self._run, name="sweeps-artifacts", daemon=True)

    def submit(self, *artifacts: Artifact) -> None:
        """Queue artifacts for upload; each replaces a waiting one of the same run and name. Artifacts that share a held
        folder must be submitted together: the folder is removed after the last of them."""
        with self._condition:
            skipped = []
            for artifact in artifacts:
                key = artifact.key, artifact.name
                due = time.monotonic() + (UPLOAD_AFTER_S if artifact.text is None else 0.0)
                if key in self._queue:
                    earlier, older = self._queue[key]
                    due = min(due, earlier)
                    skipped.append(older)
                self._queue[key] = due, artifact
            if not self._thread.is_alive() and not self._closing and self._queue:
                self._thread.start()
            self._condition.notify_all()
        for older in skipped:
            self._release(older)

    def is_waiting(self, key: str, name: str) -> bool:
        """Whether an artifact of this run and name is still to be uploaded."""
        with self._condition:
            return (key, name) in self._queue

    def close(self, while_waiting: Callable[[], None]) -> int:
        """Upload the waiting artifacts until the retrier gives up, and end the thread; return how many artifacts
        remain. Meanwhile ``while_waiting`` is called again and again."""
        with self._condition:
            self._closing = True
            self._condition.notify_all()
        while self._thread.is_alive() and self._retrier.time_left() > 0:
            while_waiting()
            self._thread.join(0.2)
        return len(self._queue) + (self._busy is not None)

    def _run(self) -> None:
        # The driver reports a full disk; artifacts that still wait are in the journal.
        with suppress(GaveUp, StorageFailed):
            while True:
                with self._condition:
                    while not self._closing and (pause := self._pause()) != 0:
                        self._condition.wait(pause)
                    if not self._queue:
                        return
                    key = min(self._queue, key=lambda each: self._queue[each][0])
                    _, artifact = self._queue.pop(key)
                    self._busy = artifact
                self._upload(artifact)
                self._busy = None
                self._release(artifact)

    def _release(self, artifact: Artifact) -> None:
        """Remove the held copy of an artifact, unless another upload still needs it."""
        if artifact.folder is None or not is_held(artifact.folder):
            return
        with self._condition:
            needed = [*(waiting for _, waiting in self._queue.values()), self._busy]
            if any(each is not None and each.folder == artifact.folder for each in needed):
                return
        release(artifact.folder)

    def _pause(self) -> float | None:
        """Return the seconds until the next artifact is due; None if no artifact waits."""
        due = min((due for due, _ in self._queue.values()), default=None)
        return None if due is None else max(0.0, due - time.monotonic())

    def _upload(self, artifact: Artifact) -> None:
        key = artifact.key, artifact.name
        uri: str | None = None
        self._began = time.monotonic()
        try:
            run_id = self._wait_for_run(artifact.key, 1.0)
            if run_id is None:
                if self._retrier.time_left() <= 0:
                    raise GaveUp
                self._put_back(artifact, 0.0)  # runs cannot be created at the moment
                return
            if self._retrier.call(partial(self._attempt, run_id, artifact), ANSWER_WITHIN_S, _transfer_s(artifact)):
                uri = f"runs:/{run_id}/{artifact.name}"
            elif key in self._queue:
                return
            else:
                self._warn(f"{_named(artifact)} was gone before it was copied to MLflow: {artifact.folder}")
        except Superseded:
            return
        except Refused as error:
            self._warn(f"{_named(artifact)} cannot be copied to MLflow: {error}")
        self._done(artifact, uri)

    def _put_back(self, artifact: Artifact, after_s: float) -> None:
        """Queue an artifact again for later, unless a newer version of it waits."""
        with self._condition:
            self._queue.setdefault((artifact.key, artifact.name), (time.monotonic() + after_s, artifact))

    def _attempt(self, run_id: str, artifact: Artifact) -> bool:
        """Upload an artifact; return whether it was complete. Raise ``Superseded`` if a newer version of it waits, or
        other artifacts have their turn."""
        key = artifact.key, artifact.name
        if key in self._queue:
            raise Superseded
        now = time.monotonic()
        if now - self._began > TURN_S and any(due <= now for due, _ in self._queue.copy().values()):
            self._put_back(artifact, NEXT_TURN_S)
            raise Superseded
        if artifact.text is not None:
            self._write_text(run_id, artifact.name, storable(artifact.text))
            return True
        assert artifact.folder is not None
        if artifact.name == LOGS:
            for name, content in _logs(artifact.folder):  # none of a trial that never began
                self._write_text(run_id, f"{LOGS}/{name}", redacted_log(content.decode(errors="replace")))
            return True
        return self._replace_checkpoint(run_id, artifact.name, Path(artifact.folder))

    def _replace_checkpoint(self, run_id: str, name: str, folder: Path) -> bool:
        """Upload a checkpoint; return whether all of its files were there until the end."""
        if not folder.is_dir():
            return False
        files = []
        for path in folder.rglob("*"):
            if path.is_file():
                files.append(path)
            elif not path.is_dir() and os.path.lexists(path):  # else it was just removed
                raise Refused(f"{path} is neither a file nor a folder, or is a link to a file that no longer exists")
        try:
            artifacts = self._artifacts_of(run_id)
            if (root := local_path(artifacts)) is not None:
                with replacing(root / name) as unfinished:
                    shutil.copytree(folder, unfinished, copy_function=self._copy_file)
                sync((root / name).parent)
            else:
                self._replace_remote(run_id, artifacts, name, folder)
        except OSError:
            if all(path.exists() for path in files):
                raise
            return False
        return all(path.exists() for path in files)

    def _write_text(self, run_id: str, name: str, text: str) -> None:
        if (root := local_path(self._artifacts_of(run_id))) is None:
            self._client.log_text(run_id, text, name)
        else:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            with replacing(root / name) as unfinished:
                unfinished.write_text(text, encoding="utf-8")
                sync(unfinished)  # the journal does not send it again after a loss of power
            sync((root / name).parent)

    def _artifacts_of(self, run_id: str) -> str:
        """Return the URI of a run's artifacts."""
        if run_id not in self._artifact_uris:
            found = fetch_sqlite_artifact_uri(self._client.tracking_uri, run_id)
            self._artifact_uris[run_id] = found or self._client.get_run(run_id).info.artifact_uri
        return self._artifact_uris[run_id]

    def _copy_file(self, source: str, target: str) -> str:
        if self._retrier.time_left() <= 0:
            raise GaveUp
        shutil.copy2(source, target)
        sync(Path(target))  # the copy may outlive its source, and must outlive a loss of power
        return target

    def _replace_remote(self, run_id: str, artifacts: str, target: str, folder: Path) -> None:
        from mlflow.exceptions import MlflowException

        names = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
        if artifacts.startswith(SERVED) and (wrong := next(filter(NOT_IN_ADDRESS.search, names), None)) is not None:
            raise Refused(f"the server would store the file {wrong} under another name; rename it, without ?, # and %")
        # The tag must not name a mixture of two checkpoints' files.
        tag = CHECKPOINT_TAGS[Path(target).name]
        with request_limits(ANSWER_WITHIN_S):  # a server that hangs is noticed before the transfer, which takes longer
            if tag in self._client.get_run(run_id).data.tags:
                self._client.delete_tag(run_id, tag)
        repository = artifact_repository(artifacts, self._client.tracking_uri)
        repository.log_artifacts(str(folder), target)
        kept = {f"{target}/{path.relative_to(folder).as_posix()}" for path in folder.rglob("*") if path.is_file()}
        for path in [file.path for file in artifact_files(repository, target) if file.path not in kept]:
            try:
                repository.delete_artifacts(path)
            except (MlflowException, OSError, NotImplementedError) as error:
                self._warn(f"a file of an older checkpoint stays in MLflow, {path}: {error}")

    def _warn(self, message: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning("%s (logged once)", message)


def _logs(folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the logs in a folder, which may be a URI."""
    if is_remote(folder):
        store = ObjectStore(folder)
        for name in sorted(store.names()):
            if name.endswith(".log") and (content := store.read(name)) is not None:
                yield name, content
    else:
        for path in sorted(Path(folder).glob("*.log")):
            yield path.name, path.read_bytes()


def _transfer_s(artifact: Artifact) -> float:
    """Return the seconds for which a slow store receives an artifact."""
    sizes = []
    if artifact.folder is not None:
        with suppress(OSError):  # a file was removed meanwhile
            sizes = [path.stat().st_size for path in Path(artifact.folder).rglob("*") if path.is_file()]
    return len(sizes) + sum(sizes) / SLOWEST_STORE


def _named(artifact: Artifact) -> str:
    return f"{artifact.name} of {f'trial {artifact.key}' if artifact.key else 'the sweep'}"
