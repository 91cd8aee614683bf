"""Record of the sweeps in an object store, rebuilt from their journals on a machine without any other data.

``--tracking-uri s3://bucket/sweeps`` names the store. Its sweeps are recorded in an MLflow store in this machine's
cache, which is updated at each access.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from filelock import FileLock

from sweeps.constants import TAG_HEARTBEAT, TAG_SWEEP, TAG_TRIAL
from sweeps.errors import UserError
from sweeps.files.versions import NewerVersion
from sweeps.folders.driver_lock import DRIVER_FILE
from sweeps.storage.location import record_copy
from sweeps.storage.object_store import ObjectStore
from sweeps.storage.state_mirror import DamagedCopy, newer_files
from sweeps.tracking.client import connect
from sweeps.tracking.journal import JOURNAL_FILE, Artifact, Journal
from sweeps.tracking.mlflow_characters import storable
from sweeps.tracking.outbox import Outbox
from sweeps.tracking.retry import Refused, Retrier
from sweeps.tracking.store import fetch_runs
from sweeps.tracking.sweep_run import OPEN_WITHIN_S, PARENT_FILE, create_again
from sweeps.tracking.uris import sqlite_path, sqlite_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient

SCHEMES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "hdfs")
SOURCE_FILE = "source"
"""File beside the local MLflow store with the object store's URI."""
VERSION_FILE = "version"
TEXTS_FILE = "texts.position"
"""File with the number of bytes of the journal whose text artifacts were stored, because this process may be killed
after it delivers the metrics and before it stores the texts."""
READS_AT_ONCE = 8
TELL_EVERY_S = 30.0
"""Seconds between two messages while a long journal is read."""

logger = logging.getLogger(__name__)


def local_store(uri: str) -> str:
    """Return the URI of the MLflow store for a tracking URI; for an object store, that of the updated local record.

    Raises:
        UserError: The object store does not answer.
    """
    if uri.partition("://")[0] in SCHEMES:
        return recorded_here(uri)
    path = sqlite_path(uri)
    source = None if path is None else path.parent / SOURCE_FILE
    return recorded_here(source.read_text(encoding="utf-8")) if source is not None and source.is_file() else uri


def recorded_here(uri: str) -> str:
    """Update the local record of all sweeps in an object store, given their ``output_dir``; return the URI of the
    MLflow store with the record.

    Raises:
        UserError: The object store does not answer.
    """
    folder = record_copy(uri)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SOURCE_FILE).write_text(uri, encoding="utf-8")
    here, store = sqlite_uri(folder / "mlflow.db"), ObjectStore(uri)
    try:
        with FileLock(folder / "record.lock"):
            names = [name for name in store.folders() if not name.startswith(".")]
            present = set(names)
            for known in folder.glob(f"*/{VERSION_FILE}"):
                if known.parent.name not in present:
                    _forget(here, known.parent)
            with ThreadPoolExecutor(READS_AT_ONCE) as threads:
                changed = list(threads.map(lambda name: _download(store / name, folder / name), names))
            client = connect(here)
            for name, parent in zip(names, changed, strict=True):
                if parent is not None:
                    with _others_go_on(store / name):
                        _deliver(client, here, store / name, folder / name, parent)
    except (OSError, ValueError, ImportError) as error:
        raise UserError(f"tracking.uri={uri}: cannot be read ({str(error).partition(chr(10))[0]})") from None
    return here


@contextmanager
def _others_go_on(sweep: ObjectStore) -> Iterator[None]:
    """Log an error that makes one sweep unreadable, so that the other sweeps are still updated."""
    try:
        yield
    except (DamagedCopy, NewerVersion, Refused, ValueError, TypeError, KeyError) as error:
        logger.warning("%s cannot be read and is not updated: %s", sweep.uri, error)


def _download(store: ObjectStore, folder: Path) -> bytes | None:
    """Download a sweep's journal if it has changed; return the data of the sweep's parent run, or None if it has
    none."""
    folder.mkdir(exist_ok=True)
    version_file = folder / VERSION_FILE
    known = version_file.read_text(encoding="utf-8") if version_file.is_file() else ""
    version, files = known, dict[str, bytes]()
    with _others_go_on(store):
        version, files = newer_files(store, (JOURNAL_FILE, PARENT_FILE), known)
    if PARENT_FILE not in files:
        return (folder / PARENT_FILE).read_bytes() if known else None
    if (folder / PARENT_FILE).is_file() and (folder / PARENT_FILE).read_bytes() != files[PARENT_FILE]:
        _forget(sqlite_uri(folder.parent / "mlflow.db"), folder)
        folder.mkdir()
    journal = files.get(JOURNAL_FILE, b"")
    (folder / JOURNAL_FILE).write_bytes(journal[: journal.rfind(b"\n") + 1])
    (folder / PARENT_FILE).write_bytes(files[PARENT_FILE])
    version_file.write_text(version, encoding="utf-8")
    return files[PARENT_FILE]


def _forget(uri: str, folder: Path) -> None:
    """Remove the record of a sweep that was removed from the store."""
    client = connect(uri)
    for run in fetch_runs(uri, {TAG_SWEEP: folder.name}):
        client.delete_run(run.run_id)
    shutil.rmtree(folder)


def _deliver(client: MlflowClient, uri: str, store: ObjectStore, folder: Path, parent: bytes) -> None:
    """Deliver the new entries of a sweep's journal."""
    ids, journal = create_again(client, uri, parent), Journal(folder)
    texts_file = folder / TEXTS_FILE
    stored = min(_number(texts_file), journal.end)
    try:
        runs = fetch_runs(uri, {TAG_SWEEP: folder.name})
        known = {run.tags[TAG_TRIAL]: run.run_id for run in runs if TAG_TRIAL in run.tags}
        texts = {
            (entry.key, entry.name): entry.text
            for entry in journal.entries(stored)
            if isinstance(entry, Artifact) and entry.text is not None
        }
        retrier = Retrier(uri, "writing to MLflow")
        retrier.give_up_after(OPEN_WITHIN_S)
        outbox = Outbox(client, retrier, journal, ids, beat=lambda: None)
        outbox.adopt(known)
        told = monotonic()
        while outbox.deliver():
            if monotonic() - told > TELL_EVERY_S:
                told = monotonic()
                logger.warning("reading %s: %.1f MB left", folder.name, (journal.end - journal.position) / 1e6)
        for (key, name), text in texts.items():
            with suppress(Refused):
                if (run_id := outbox.wait_for_run(key, 0)) is not None:  # else the journal has lost its beginning
                    client.log_text(run_id, storable(text), name)
        if journal.end != stored or not texts_file.exists():
            texts_file.write_text(str(journal.end), encoding="ascii")
    finally:
        journal.close()
    if (beat := store.modified(DRIVER_FILE)) is not None:
        client.set_tag(ids.run_id, TAG_HEARTBEAT, f"{beat:.3f}")


def _number(file: Path) -> int:
    """Return the number in a file; 0 if it is missing or damaged, so that everything is done again."""
    try:
        return max(0, int(file.read_text(encoding="ascii")))
    except (OSError, ValueError):
        return 0
