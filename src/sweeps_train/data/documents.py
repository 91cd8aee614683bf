"""Documents for language models: read from files or the hub, and split into training and held-out ones."""

from __future__ import annotations

import csv
import glob
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeps_train.config import TextData
from sweeps_train.data.samples import held_out_indices
from sweeps_train.data.standard_library import docstrings, source_files

Document = Mapping[str, Any]
"""Columns by name."""

BUILTIN_DOCSTRINGS = "builtin:stdlib_docstrings"

_LOADERS = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".csv": "csv", ".txt": "text"}
"""File types, and what Hugging Face datasets calls them."""


def read_documents(config: TextData) -> tuple[list[Document], list[Document]]:
    """Training and held-out documents, in the data's own order.

    Raises:
        ValueError: Nothing is there, nothing is left for one of the two, or a type of file is unknown.
    """
    train, held_out = _read_splits(config)
    train, held_out = train[: config.max_train_documents], held_out[: config.max_eval_documents]
    if not train:
        raise ValueError(f"data.path={config.path}: no documents to train on; give data with at least two documents")
    if not held_out:
        raise ValueError(
            f"data.path={config.path}: no documents to evaluate on; "
            "give data.eval_path, data.eval_split or a larger data.eval_fraction"
        )
    return train, held_out


def fingerprint(config: TextData) -> list[Any]:
    """Of types that JSON knows; changes whenever ``read_documents`` might return something else.

    Raises:
        ValueError: Nothing is there.
    """
    train = _fingerprint("data.path", config.path, config.subset, config.train_split)
    if config.eval_path is not None:
        split = config.eval_split or config.train_split
        return [train, _fingerprint("data.eval_path", config.eval_path, config.subset, split)]
    if config.eval_split is not None:
        return [train, _identity(_load_hub("data.eval_split", config.path, config.subset, config.eval_split))]
    return [train]


def _fingerprint(key: str, path: str, subset: str | None, split: str) -> Any:
    """Name, size and time of every local file; what ``datasets`` has for others."""
    if path == BUILTIN_DOCSTRINGS:
        files: list[Path] | None = source_files()
    elif "://" in path:
        return _identity(_load_remote(key, path))
    else:
        files = local_files(key, path)
    if files is None:
        return _identity(_load_hub(key, path, subset, split))
    return [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def _identity(data_set: Any) -> str:
    identity: str = data_set._fingerprint  # noqa: SLF001 - datasets' own cache goes by it, and it has no other name
    return identity


def _read_splits(config: TextData) -> tuple[list[Document], list[Document]]:
    if config.path == BUILTIN_DOCSTRINGS:
        train: list[Document] = [{"text": text} for text in docstrings("train")]
        held_out: list[Document] | None = [{"text": text} for text in docstrings("eval")]
    else:
        train = _read("data.path", config.path, config.subset, config.train_split)
        held_out = None
    if config.eval_path is not None:
        return train, _read("data.eval_path", config.eval_path, config.subset, config.eval_split or config.train_split)
    if config.eval_split is not None:
        return train, list(_load_hub("data.eval_split", config.path, config.subset, config.eval_split))
    if held_out is not None:
        return train, held_out
    train_indices, held_out_at = held_out_indices(len(train), config.eval_fraction)
    return [train[index] for index in train_indices], [train[index] for index in held_out_at]


def _read(key: str, path: str, subset: str | None, split: str) -> list[Document]:
    if "://" in path:
        return list(_load_remote(key, path))
    files = local_files(key, path)
    if files is None:
        return list(_load_hub(key, path, subset, split))
    documents: list[Document] = []
    for file in files:
        documents += _read_file(key, file)
    return documents


def local_files(key: str, path: str) -> list[Path] | None:
    """The files that a path, folder or glob means, sorted; None if it can only be a name on the hub."""
    local = Path(path).expanduser()
    if local.is_file():
        return [local]
    if local.is_dir():
        found = sorted(file for file in local.rglob("*") if file.suffix in _LOADERS and file.is_file())
    elif glob.has_magic(path):
        names = glob.glob(str(local), recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
        found = sorted(Path(name) for name in names if Path(name).is_file())
    elif local.suffix in _LOADERS or path.startswith((".", "/", "~", "builtin:")):
        found = []
    else:
        return None
    if not found:
        raise ValueError(
            f"{key}={path}: there are no such files; give a {', '.join(_LOADERS)} file, "
            "a folder or glob of them, or a name on the Hugging Face hub"
        )
    return found


def _read_file(key: str, file: Path) -> list[Document]:
    if file.suffix == ".parquet":
        import pyarrow.parquet

        rows: list[Document] = pyarrow.parquet.read_table(file).to_pylist()
        return rows
    if file.suffix == ".csv":
        with file.open(encoding="utf-8", newline="") as lines:
            return list(csv.DictReader(lines))
    if file.suffix not in (".json", ".jsonl"):
        return [{"text": file.read_text(encoding="utf-8")}]
    return _read_json(key, file)


def _read_json(key: str, file: Path) -> list[Document]:
    """A list of objects, or one object a line."""
    text = file.read_text(encoding="utf-8")
    documents = []
    try:
        if text.lstrip().startswith("["):
            documents = json.loads(text)
        else:
            for line in text.split("\n"):  # not splitlines, which also splits at characters that JSON allows in strings
                if line.strip():
                    documents.append(json.loads(line))
    except json.JSONDecodeError as error:
        raise ValueError(f"{key}: {file} is not JSON, document {len(documents) + 1}: {error}") from error
    if not all(isinstance(document, dict) for document in documents):
        raise ValueError(f"{key}: {file} must hold JSON objects, one a line, each with the columns of a document")
    return documents


def _load_remote(key: str, path: str) -> Any:
    from datasets import load_dataset

    suffix = Path(path).suffix
    if suffix not in _LOADERS:
        raise ValueError(f"{key}={path}: unknown type of file; give a {', '.join(_LOADERS)} file")
    return load_dataset(_LOADERS[suffix], data_files=path, split="train")


def _load_hub(key: str, path: str, subset: str | None, split: str) -> Any:
    from datasets import load_dataset

    try:
        return load_dataset(path, subset, split=split)
    except Exception as error:  # whatever datasets or the network says, the person must learn which key led there
        raise ValueError(
            f"{key}: the data set {path} (split {split}) cannot be loaded from the hub: {error}"
        ) from error


def column(documents: Sequence[Document], key: str, name: str) -> Iterable[Any]:
    """A column of all documents.

    Raises:
        ValueError: A document does not have it, or has nothing in it.
    """
    for index, document in enumerate(documents):
        if name not in document:
            raise ValueError(f"{key}={name}: document {index + 1} has no such column; it has {sorted(document)}")
        if document[name] is None:
            raise ValueError(f"{key}={name}: document {index + 1} has nothing in it; remove such documents")
        yield document[name]
