"""Copies checkpoints into MLflow's artifacts, on a thread of its own: gigabytes must not hold up metrics."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit

from sweeps import constants
from sweeps.tracking.link import GaveUp, Link, Refused

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)

Which = Literal["best", "last"]
COPY_AFTER_S = 2.0
"""Seconds that a checkpoint waits for a newer one, which in a short trial comes soon: then that alone is copied."""
ANSWER_WITHIN_S = 120
"""Seconds that a server may need to store a file that it was sent."""


class CheckpointCopier:
    """A thread that copies folders; per trial and kind only the newest one that waits."""

    def __init__(
        self,
        client: MlflowClient,
        link: Link,
        wait_for_run: Callable[[str, float], str | None],
        copied: Callable[[str, Which, str], None],
    ) -> None:
        """The thread starts with the first folder.

        Args:
            client: MLflow's.
            link: Repeats calls.
            wait_for_run: MLflow's run id of a trial, after waiting so long for its creation.
            copied: Called on the thread with a trial, the kind and the URI of what has been copied.
        """
        self._client = client
        self._link = link
        self._wait_for_run = wait_for_run
        self._copied = copied
        self._queue: dict[tuple[str, Which], Path] = {}
        self._due: dict[tuple[str, Which], float] = {}
        """When each is copied, by ``time.monotonic``."""
        self._condition = threading.Condition()
        self._busy = False
        self._closing = False
        self._deadline = float("inf")
        self._warned = False
        self._thread = threading.Thread(target=self._run, name="sweeps-checkpoints", daemon=True)

    def submit(self, trial: str, which: Which, folder: Path) -> None:
        """Copy ``folder`` soon; an older one of that trial and kind that still waits is skipped."""
        with self._condition:
            self._queue[trial, which] = folder
            self._due.setdefault((trial, which), time.monotonic() + COPY_AFTER_S)
            if not self._thread.is_alive() and not self._closing:
                self._thread.start()
            self._condition.notify_all()

    def close(self, deadline: float) -> int:
        """Copy what waits, until ``deadline`` (``time.monotonic``), and end; how many were left."""
        with self._condition:
            self._deadline = deadline
            self._closing = True
            self._condition.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout=max(1.0, deadline - time.monotonic()))
        return len(self._queue) + self._busy

    def _run(self) -> None:
        try:
            while True:
                with self._condition:
                    while not self._closing and (pause := self._pause()) != 0:
                        self._condition.wait(pause)
                    if not self._queue:
                        return
                    (trial, which), folder = next(iter(self._queue.items()))
                    del self._queue[trial, which], self._due[trial, which]
                    self._busy = True
                self._copy(trial, which, folder)
                self._busy = False
        except GaveUp:
            pass

    def _pause(self) -> float | None:
        """Seconds until one is due; None while there is none. They are due in the order in which they came."""
        first = next(iter(self._queue), None)
        return None if first is None else max(0.0, self._due[first] - time.monotonic())

    def _copy(self, trial: str, which: Which, folder: Path) -> None:
        try:
            run_id = self._wait_for_run(trial, 1.0)
            if run_id is None:
                if time.monotonic() >= self._deadline:
                    raise GaveUp
                with self._condition:  # later; the writer can't create runs at the moment
                    self._queue.setdefault((trial, which), folder)
                    self._due.setdefault((trial, which), time.monotonic())
                return
            copied = self._link.call(partial(self._attempt, run_id, (trial, which), folder), ANSWER_WITHIN_S)
        except Refused as error:
            self._warn(f"MLflow refuses the {which} checkpoint of trial {trial}: {error}")
            return
        if copied:
            self._copied(trial, which, f"runs:/{run_id}/{constants.CHECKPOINT_ARTIFACTS}/{which}")
        elif (trial, which) not in self._queue:
            self._warn(f"the {which} checkpoint of trial {trial} was gone before it was copied to MLflow: {folder}")

    def _attempt(self, run_id: str, key: tuple[str, Which], folder: Path) -> bool:
        """Whether the whole folder was copied; not if it is gone or a newer one waits."""
        if key in self._queue or not folder.is_dir():
            return False
        files = [path for path in folder.rglob("*") if path.is_file()]
        try:
            artifacts = self._client.get_run(run_id).info.artifact_uri
            target = f"{constants.CHECKPOINT_ARTIFACTS}/{key[1]}"
            if (root := _local_folder(artifacts)) is not None:
                self._replace_folder(folder, root / target)
            else:
                self._replace_remote(run_id, artifacts, target, folder, key[1])
        except OSError:
            if not all(path.exists() for path in files):
                return False
            raise
        return all(path.exists() for path in files)

    def _replace_folder(self, folder: Path, target: Path) -> None:
        # Whoever reads the old one meanwhile, and whoever looks after a crash, finds a whole checkpoint.
        new, old = target.with_name(f".{target.name}.new"), target.with_name(f".{target.name}.old")
        shutil.rmtree(new, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copytree(folder, new, copy_function=self._copy_file)
            shutil.rmtree(old, ignore_errors=True)
            if target.exists():
                target.rename(old)
            new.rename(target)
        finally:
            shutil.rmtree(new, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)

    def _copy_file(self, source: str, target: str) -> str:
        if time.monotonic() >= self._deadline:
            raise GaveUp
        return shutil.copy2(source, target)

    def _replace_remote(self, run_id: str, artifacts: str, target: str, folder: Path, which: Which) -> None:
        from mlflow.exceptions import MlflowException
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        # While files of two checkpoints lie mixed, the tag must not name them as one.
        tag = TAGS[which]
        if tag in self._client.get_run(run_id).data.tags:
            self._client.delete_tag(run_id, tag)
        repository = get_artifact_repository(artifacts, tracking_uri=self._client.tracking_uri)
        repository.log_artifacts(str(folder), target)  # type: ignore[no-untyped-call]
        kept = {f"{target}/{path.relative_to(folder).as_posix()}" for path in folder.rglob("*") if path.is_file()}
        folders = [target]
        while folders:
            for file in repository.list_artifacts(folders.pop()):
                if file.is_dir:
                    folders.append(file.path)
                elif file.path not in kept:
                    try:
                        repository.delete_artifacts(file.path)  # type: ignore[no-untyped-call]
                    except (MlflowException, OSError, NotImplementedError) as error:
                        self._warn(f"a file of an older checkpoint stays in MLflow, {file.path}: {error}")

    def _warn(self, message: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning("%s (said once)", message)


TAGS: dict[Which, str] = {"best": constants.TAG_CHECKPOINT_BEST, "last": constants.TAG_CHECKPOINT_LAST}
"""Tag that holds the URI of each kind."""


def _local_folder(artifact_uri: str) -> Path | None:
    address = urlsplit(artifact_uri)
    if address.scheme == "":
        return Path(artifact_uri)
    return Path(unquote(address.path)) if address.scheme == "file" else None
