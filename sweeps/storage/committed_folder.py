"""Folders in an object store that are complete or absent, such as checkpoints.

A sealed folder (``sweeps_train.checkpoints.integrity``) is uploaded file by file, and its seal last: files without a
seal do not count as a folder. When a folder is removed, the seal is removed first. An interrupted upload leaves files
without a seal, which the next upload of the same folder replaces, and ``withdraw`` removes.

All functions raise ``OSError`` if the store does not answer, or refuses, or if a local file cannot be read or written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

from sweeps.files.whole_files import replacing
from sweeps.storage.object_store import ObjectStore
from sweeps_train.checkpoints.integrity import SEAL_FILE, with_checksum_of

FILES_AT_ONCE = 4
"""Maximum number of files that are copied at the same time."""


def commit(store: ObjectStore, folder: Path) -> None:
    """Upload a sealed folder to its own place in the store. After an error, nothing is committed."""
    seal = json.loads((folder / SEAL_FILE).read_text(encoding="utf-8"))
    store.remove(SEAL_FILE)  # of a folder that this one replaces
    with ThreadPoolExecutor(FILES_AT_ONCE) as threads:
        list(threads.map(lambda name: store.upload(folder / name, name), seal))
    store.upload(folder / SEAL_FILE, SEAL_FILE)


def fetch(store: ObjectStore, folder: Path) -> None:
    """Download a committed folder from its own place in the store, completely or not at all; a local folder is
    replaced.

    Raises:
        FileNotFoundError: The folder is not committed.
    """
    content = _seal(store)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replacing(folder) as unfinished:
        unfinished.mkdir()
        with ThreadPoolExecutor(FILES_AT_ONCE) as threads:
            list(threads.map(lambda name: store.download(name, unfinished / name), json.loads(content)))
        (unfinished / SEAL_FILE).write_bytes(content)


def is_same(store: ObjectStore, folder: Path) -> bool:
    """Whether a local folder equals the committed one, judged by its seal and file sizes."""
    try:
        content = (folder / SEAL_FILE).read_bytes()
        sizes = {name: size for name, (size, _) in json.loads(content).items()}
        is_whole = all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    return is_whole and store.read(SEAL_FILE) == content


def copy(source: ObjectStore, target: ObjectStore, replaced: Mapping[str, bytes] = MappingProxyType({})) -> None:
    """Copy a committed folder to another place in the same store, with new content for some files. After an error,
    nothing is committed there.

    Raises:
        FileNotFoundError: The folder is not committed.
    """
    content = _seal(source)
    target.remove(SEAL_FILE)
    names = [name for name in json.loads(content) if name not in replaced]
    with ThreadPoolExecutor(FILES_AT_ONCE) as threads:
        list(threads.map(lambda name: source.copy(name, target), names))
    for name, new in replaced.items():
        target.write(name, new)
        content = with_checksum_of(content, name, new)
    target.write(SEAL_FILE, content)


def committed(names: Iterable[str]) -> list[str]:
    """Return the committed folders among the names of objects, sorted.

    >>> committed(["trials/0001/step-00000020/model", "trials/0001/step-00000010/files.json"])
    ['trials/0001/step-00000010']
    """
    return sorted(name.removesuffix(f"/{SEAL_FILE}") for name in names if name.endswith(f"/{SEAL_FILE}"))


def withdraw(store: ObjectStore) -> None:
    """Remove a folder. It stops being committed immediately."""
    store.remove(SEAL_FILE)
    store.remove_all()


def _seal(store: ObjectStore) -> bytes:
    if (content := store.read(SEAL_FILE)) is None:
        raise FileNotFoundError(f"{store}: is incomplete: it has no {SEAL_FILE}")
    return content
