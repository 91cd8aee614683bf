"""Trial whose folder is in an object store: its local copy on each node during training, and the upload of its
checkpoints.

The workers train in a folder of their node. The first worker of each node downloads the trial's checkpoints before the
training begins. The main worker uploads every checkpoint from a thread while the training continues: first the report
log, so that the reports up to a checkpoint are there when it is, then its files, and last its seal.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path

import ray

from sweeps.config import UPLOADED_WITHIN_S
from sweeps.folders.trial_files import log_name
from sweeps.runtime.report_log import REPORT_LOG_FILE
from sweeps.runtime.signs_of_life import signs_of_life
from sweeps.runtime.trial_assignment import Assignment
from sweeps.storage.committed_folder import commit, committed, copy, fetch, is_same, withdraw
from sweeps.storage.location import is_remote, joined, node_copy
from sweeps.storage.object_store import ObjectStore
from sweeps.tracking.held_checkpoints import hold, release

AGAIN_AFTER_S = 2.0
ALIVE_EVERY_S = 5.0
REPLACED = "-replaced"
"""Suffix of the copy of a committed checkpoint while another one of its step takes its place."""
STAY_MEANWHILE = 2
"""Number of replaced checkpoints (the last and the best) that stay in the store while their replacements are
uploaded."""

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def in_store(assignment: Assignment, rank: int) -> Iterator[tuple[Assignment, StoredTrial | None]]:
    """Download a trial's files from its object store to this node, and upload the remaining ones at the end.

    Args:
        assignment: The trial; its folders may be URIs.

    Yields:
        The assignment with folders of this node, and the stored trial; for a trial in a plain folder, the unchanged
        assignment and None.

    Raises:
        OSError: The store does not answer.
        NotShared: This process does not see the driver's folder.
    """
    if not is_remote(assignment.checkpoint_folder):
        if assignment.shared is not None:
            assignment.shared.check()
        yield assignment, None
        return
    stored = StoredTrial(assignment, rank)
    with signs_of_life(assignment):
        stored.restore()
    here = replace(assignment, checkpoint_folder=str(stored.folder), log_folder=str(stored.log_folder))
    try:
        yield here, stored
    except BaseException:
        stored.close(failed=True)
        raise
    stored.close(failed=False)


class StoredTrial:
    """Access of one worker, during one attempt, to a trial in an object store."""

    def __init__(self, assignment: Assignment, rank: int) -> None:
        self._assignment, self._rank = assignment, rank
        self._store, self._logs = ObjectStore(assignment.checkpoint_folder), ObjectStore(assignment.log_folder)
        node = ray.get_runtime_context().get_node_id()
        self.folder = node_copy(assignment.checkpoint_folder, node)
        self.log_folder = node_copy(assignment.log_folder, node)
        self.steps: set[str] = set()
        """Names of the checkpoints that are in the store, ``step-00000020``."""
        self._cut_off: set[str] = set()
        """Names of checkpoints whose upload may be incomplete, unless they are in ``steps``; only on the main
        worker."""
        self._is_first_on_node = False
        """Whether this worker downloads and removes the node's copy of the checkpoints."""
        self._queue: queue.Queue[tuple[Path, Callable[[str], None]]] = queue.Queue()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._follow, name="checkpoint-upload", daemon=True)

    def restore(self) -> None:
        """Download checkpoints, the report log and this worker's log to this node. Every worker calls it.

        Raises:
            OSError: The store does not answer.
        """
        from ray.train import get_context
        from ray.train.collective import barrier, broadcast_from_rank_zero

        found = self._store.names() if self._rank == 0 else {}
        if self._bring_back_replaced(committed(found)):
            found = self._store.names()
        names = broadcast_from_rank_zero([name for name in committed(found) if "/" not in name])
        self._cut_off = {name.partition("/")[0] for name in found if name.startswith("step-")} - {*names}
        self._is_first_on_node = get_context().get_local_rank() == 0
        if self._is_first_on_node:
            self.folder.mkdir(parents=True, exist_ok=True)
            for left in self.folder.iterdir():  # of an attempt that was killed
                if left.name not in names:
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
            for name in names:
                if not is_same(self._store / name, self.folder / name):
                    fetch(self._store / name, self.folder / name)
        if self._rank == 0:
            with contextlib.suppress(FileNotFoundError):
                self._store.download(REPORT_LOG_FILE, self.folder / REPORT_LOG_FILE)
        self.log_folder.mkdir(parents=True, exist_ok=True)
        log = log_name(self._rank)
        (self.log_folder / log).unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self._logs.download(log, self.log_folder / log)
        self.steps = set(names)
        barrier()

    def _bring_back_replaced(self, names: Collection[str]) -> bool:
        """Restore checkpoints that were about to be replaced when the attempt was killed; return whether any of the
        committed ``names`` was one."""
        copies = [name for name in names if name.endswith(REPLACED) and "/" not in name]
        for copied in copies:
            if (step := copied.removesuffix(REPLACED)) not in names:
                copy(self._store / copied, self._store / step)
            withdraw(self._store / copied)
        return bool(copies)

    def save(self, checkpoint: Path, saved: Callable[[str], None]) -> None:
        """Start uploading a complete checkpoint; only the main worker calls this.

        Args:
            checkpoint: Folder of the checkpoint, or a folder in it.
            saved: Called on another thread with the URI of ``checkpoint`` when it is in the store. Not called for a
                checkpoint that the training removes before the upload, because it has better ones.

        Raises:
            OSError: The store did not accept an earlier checkpoint.
        """
        if self._error is not None:  # not hours later, at the end of the training
            raise self._error
        if not self._thread.is_alive():
            self._thread.start()
        self._queue.put((checkpoint, saved))

    def uri(self, checkpoint: Path) -> str:
        """Return the URI of a checkpoint, or of a folder in it."""
        return joined(self._assignment.checkpoint_folder, checkpoint.relative_to(self.folder).as_posix())

    def wait(self) -> None:
        """Wait until all checkpoints are in the store.

        Raises:
            OSError: The store does not accept the checkpoints.
        """
        alive = time.monotonic()
        while self._queue.unfinished_tasks and self._error is None:
            time.sleep(0.02)
            if time.monotonic() - alive > ALIVE_EVERY_S:
                alive = time.monotonic()
                self._assignment.broker.alive(*self._assignment.key)
        if self._error is not None:
            raise self._error

    def close(self, *, failed: bool) -> None:
        """Upload the remaining files, and remove this node's copy.

        Args:
            failed: Whether the training has failed; then an error of the store is only logged.

        Raises:
            OSError: The store does not answer.
        """
        try:
            self.wait()
            if self._rank == 0:
                self._upload_report_log()
                if not failed:
                    self._withdraw_superseded()
            self._upload_log()
        except OSError:
            if not failed:
                raise
            logger.exception("the last files of trial %s are not in the store", self._assignment.trial)
        (self.log_folder / log_name(self._rank)).unlink(missing_ok=True)
        if self._is_first_on_node:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _follow(self) -> None:
        while True:
            checkpoint, saved = self._queue.get()
            try:
                self._upload(checkpoint, saved)
            except Exception as error:  # noqa: BLE001 - raised by `wait`
                self._error = error
            finally:
                self._queue.task_done()

    def _upload(self, checkpoint: Path, saved: Callable[[str], None]) -> None:
        step = next(part for part in checkpoint.relative_to(self.folder).parts if part.startswith("step-"))
        deadline = time.monotonic() + UPLOADED_WITHIN_S
        is_there = False
        while not is_there:
            held = hold(str(self.folder / step), str(self.folder))  # the training may remove it meanwhile
            source = Path(held) if held is not None else self.folder / step  # the file system cannot link files
            if not source.is_dir():
                return  # it has been removed, and a better one follows
            try:
                if step not in self.steps or not is_same(self._store / step, source):  # it may replace a damaged one
                    self._upload_report_log()
                    self._cut_off.add(step)
                    self._commit(step, source)
                    self.steps.add(step)
                is_there = True
            except OSError as error:
                if time.monotonic() > deadline:
                    raise
                logger.warning("checkpoint %s is not in the store: %s; it is tried again", step, error)
                time.sleep(AGAIN_AFTER_S)
            finally:
                if held is not None:
                    release(held)
        saved(self.uri(checkpoint))
        with contextlib.suppress(OSError):  # repeated with the next checkpoint, and at the end
            self._withdraw_superseded()
            self._upload_log()

    def _commit(self, step: str, source: Path) -> None:
        """Commit a checkpoint. One of its step that it replaces stays in the store until it is there."""
        is_replaced, replaced = step in self.steps, self._store / f"{step}{REPLACED}"
        if is_replaced:
            with contextlib.suppress(FileNotFoundError):  # an interrupted upload has removed its seal
                copy(self._store / step, replaced)
        commit(self._store / step, source)
        if is_replaced:
            with contextlib.suppress(OSError):  # the next attempt removes it
                withdraw(replaced)

    def _upload_report_log(self) -> None:
        if (self.folder / REPORT_LOG_FILE).exists():
            self._store.upload(self.folder / REPORT_LOG_FILE, REPORT_LOG_FILE)

    def _upload_log(self) -> None:
        log = log_name(self._rank)
        if (self.log_folder / log).exists():
            self._logs.upload(self.log_folder / log, log)

    def _withdraw_superseded(self) -> None:
        """Remove from the store the checkpoints that the training has removed here, and the rest of interrupted
        uploads. The newest checkpoints stay until their replacements are in the store, so that the trial can always
        continue from one."""
        from sweeps_train.checkpoints.checkpoint import complete_checkpoints  # imports torch

        here = {path.name for path in complete_checkpoints(self.folder)}
        superseded = sorted(self.steps - here)
        if not here <= self.steps:
            superseded = superseded[:-STAY_MEANWHILE]
        for step in [*superseded, *self._cut_off - self.steps]:
            withdraw(self._store / step)
            self.steps.discard(step)
            self._cut_off.discard(step)
