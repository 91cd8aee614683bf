"""Fingerprints of data by content: equal on all machines with the same data, different if any byte differs.

Of files beyond 64 MiB, only the size and 64 blocks of 1 MiB, spread evenly, are hashed, and after the first 4 GiB of a
source only names and sizes, so that a terabyte takes seconds; a change elsewhere that keeps the size goes unnoticed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from sweeps_train.command.placeholders import texts_in
from sweeps_train.config import (
    CommandConfig,
    CommandTask,
    CustomData,
    DigitsData,
    EstimatorConfig,
    FunctionConfig,
    TableData,
    TextData,
    TrainingConfig,
)
from sweeps_train.data.data_files import FILE_TYPES, local_files
from sweeps_train.data.digits import files_of_sklearn
from sweeps_train.data.standard_library import BUILTIN_DOCSTRINGS, source_files
from sweeps_train.tables.table_files import TYPES

BLOCK = 2**20
MOST_BLOCKS = 64
MOST_BYTES = 4 * 2**30
"""Number of hashed bytes of a source after which only the names and sizes of its other files are hashed."""
MOST_FILES = 100_000
"""Maximum number of files that are hashed in a folder named by arguments of a user's function."""

Training = TrainingConfig | FunctionConfig | CommandConfig | EstimatorConfig

Digest = Callable[[], str | None]
"""Hashes a source of data when it is called."""


def data_fingerprints(*configs: Training, only: Training | None = None) -> dict[str, str | None]:
    """Hash the data of trainings, each source once.

    A user's own function is identified by its source file, its arguments, and the files that these name; a program by
    its command line, and the files that are named in its command line and config files.

    Args:
        configs: Trainings of a sweep; arguments are those of the last one.
        only: Hash only the sources that this training, one of the sweep's, reads.

    Returns:
        A digest by the name of each source of data; None if its contents cannot be read from here.
    """
    sources: dict[str, Digest] = {}
    for config in configs:
        sources |= _sources(config)
    if only is not None:
        sources = {name: sources.get(name, digest) for name, digest in _sources(only).items()}
    return {name: digest() for name, digest in sources.items()}


def _sources(config: Training) -> dict[str, Digest]:
    if isinstance(config, FunctionConfig):
        return _function(config.task.target, config.task.arguments)
    if isinstance(config, CommandConfig):
        return _program(config.task)
    data = config.data
    if isinstance(data, DigitsData):
        return {"digits": lambda: _files(files_of_sklearn("digits.csv.gz"))}
    if isinstance(data, CustomData):
        return _function(data.target, data.arguments)
    return {path: partial(_data, data, path) for path in (data.path, data.eval_path) if path is not None}


def _data(config: TableData | TextData, path: str) -> str | None:
    if isinstance(config, TableData) and path.startswith("builtin:"):
        return _files(files_of_sklearn(f"{path.removeprefix('builtin:')}*.csv*"))
    if path == BUILTIN_DOCSTRINGS:
        return _files(source_files())
    if "://" in path:
        return None
    types = TYPES[config.format] if isinstance(config, TableData) else FILE_TYPES
    try:
        files = local_files("data.path", path, types)
    except ValueError:
        return None  # the data may be on the workers' machines only
    if files is not None:
        return _files(files)
    return _hub_commit(path, config) if isinstance(config, TextData) else None


def _hub_commit(name: str, config: TextData) -> str | None:
    """Return the commit of a hub data set that this machine downloaded last, for the configured revision."""
    from huggingface_hub.constants import HF_HUB_CACHE

    revision = (config.revision if name == config.path else None) or "main"
    folder = Path(HF_HUB_CACHE) / f"datasets--{name.replace('/', '--')}"
    try:
        commit = (folder / "refs" / revision).read_text(encoding="utf-8").strip()
    except OSError:
        if not (folder / "snapshots" / revision).is_dir():  # the revision may be a commit itself
            return None
        commit = revision
    return f"{commit}/{config.subset}" if config.subset else commit


def _function(target: str, arguments: dict[str, Any]) -> dict[str, Digest]:
    def digest() -> str | None:
        try:
            spec = importlib.util.find_spec(target.rpartition(".")[0])
        except (ImportError, ValueError):
            return None
        if spec is None or spec.origin is None:
            return None
        hashed = hashlib.sha256(json.dumps(arguments, sort_keys=True, default=str).encode()).hexdigest()
        return f"{_files([Path(spec.origin)])} {hashed[:16]}"

    return {target: digest, **_named_files(arguments)}


def _named_files(values: Any) -> dict[str, Digest]:
    """Hash the files and folders that texts in some values name."""
    texts = {text for _, text in texts_in("", values)}
    # Unlike Path's methods, these return False for a text that is too long or no path at all.
    paths = {text for text in texts if os.path.isfile(text) or os.path.isdir(text)}  # noqa: PTH112, PTH113
    return {path: partial(_files, _files_in(path)) for path in sorted(paths)}


def _program(task: CommandTask) -> dict[str, Digest]:
    named = [task.command.split() if isinstance(task.command, str) else task.command, task.options, task.arguments]
    hashed = hashlib.sha256(json.dumps([*named, task.environment], sort_keys=True, default=str).encode()).hexdigest()
    sources = [file.source for file in task.files.values() if file.source is not None]
    return {"command": lambda: hashed[:16], **_named_files([*named, *sources])}


def _files_in(path: str) -> Iterator[Path]:
    """Yield a file, or the first files below a folder."""
    if os.path.isfile(path):  # noqa: PTH113
        yield Path(path)
    yield from sorted(islice(_files_below(path), MOST_FILES))


def _files_below(folder: str) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders.sort()  # the first files are then the same on all machines
        yield from (path for name in sorted(names) if (path := Path(parent, name)).is_file())


def _files(files: Iterable[Path]) -> str | None:
    """Return one digest of the names and contents of files; names are relative to the folder that contains all of
    them."""
    digest, left = hashlib.sha256(), MOST_BYTES
    try:
        files = list(files)
        if not files:
            return None
        root = Path(os.path.commonpath([file.parent for file in files]))
        for file in files:
            digest.update(f"{file.relative_to(root) if len(files) > 1 else ''}\0{file.stat().st_size}\0".encode())
            for block in _blocks(file) if left > 0 else ():
                digest.update(block)
                left -= len(block)
    except OSError:
        return None
    return digest.hexdigest()


def _blocks(file: Path) -> Iterator[bytes]:
    size = file.stat().st_size
    with file.open("rb") as opened:
        if size <= MOST_BLOCKS * BLOCK:
            while block := opened.read(BLOCK):
                yield block
            return
        for index in range(MOST_BLOCKS):
            opened.seek(index * (size - BLOCK) // (MOST_BLOCKS - 1))
            yield opened.read(BLOCK)
