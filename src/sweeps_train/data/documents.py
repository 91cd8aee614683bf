"""Documents for language models: read from files or the hub, and split into training and held-out ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sweeps_train.config import TextData
from sweeps_train.data.files import Document, File, file_at, find_files, pieces_of, read_piece
from sweeps_train.data.sampler import held_out_indices
from sweeps_train.data.standard_library import docstrings, source_files

BUILTIN_DOCSTRINGS = "builtin:stdlib_docstrings"


def read_documents(config: TextData) -> tuple[list[Document], list[Document]]:
    """Training and held-out documents, in the data's own order.

    Raises:
        ValueError: Nothing is there, nothing is left for one of the two, or a type of file is unknown.
    """
    train, held_out = _read_splits(config)
    train, held_out = train[: config.max_train_documents], held_out[: config.max_eval_documents]
    check_splits(config, len(train), len(held_out))
    return train, held_out


def check_splits(config: TextData, num_train: int, num_held_out: int) -> None:
    """
    Raises:
        ValueError: One of the two has no documents.
    """
    if not num_train:
        raise ValueError(f"data.path={config.path}: no documents to train on; give data with at least two documents")
    if not num_held_out:
        raise ValueError(
            f"data.path={config.path}: no documents to evaluate on; "
            "give data.eval_path, data.eval_split or a larger data.eval_fraction"
        )


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
        return [train, _identity(load_hub("data.eval_split", config.path, config.subset, config.eval_split))]
    return [train]


def _fingerprint(key: str, path: str, subset: str | None, split: str) -> Any:
    """Name, size and time of every file; what ``datasets`` has for a data set of the hub."""
    if path == BUILTIN_DOCSTRINGS:
        files: list[File] | None = [file_at(file) for file in source_files()]
    else:
        files = find_files(key, path)
    if files is None:
        return _identity(load_hub(key, path, subset, split))
    return [(file.location, file.size, file.modified_ns) for file in files]


def _identity(data_set: Any) -> str:
    identity: str = data_set._fingerprint  # noqa: SLF001 - datasets' own cache goes by it, and it has no other name
    return identity


def _read_splits(config: TextData) -> tuple[list[Document], list[Document]]:
    if config.path == BUILTIN_DOCSTRINGS:
        train: list[Document] = [{"text": text} for text in docstrings("train")]
        held_out: list[Document] | None = [{"text": text} for text in docstrings("eval")]
    else:
        train = _read("data.path", config.path, config, config.train_split)
        held_out = None
    if config.eval_path is not None:
        return train, _read("data.eval_path", config.eval_path, config, config.eval_split or config.train_split)
    if config.eval_split is not None:
        return train, list(load_hub("data.eval_split", config.path, config.subset, config.eval_split))
    if held_out is not None:
        return train, held_out
    train_indices, held_out_at = held_out_indices(len(train), config.eval_fraction)
    return [train[index] for index in train_indices], [train[index] for index in held_out_at]


def _read(key: str, path: str, config: TextData, split: str) -> list[Document]:
    files = find_files(key, path)
    if files is None:
        return list(load_hub(key, path, config.subset, split))
    lines = config.lines_are_documents
    pieces = (piece for file in files for piece in pieces_of(file, lines=lines))
    try:
        return [document for piece in pieces for document in read_piece(piece, lines=lines)]
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error


def load_hub(key: str, path: str, subset: str | None, split: str) -> Any:
    """A data set of the hub, downloaded once to this machine and mapped from its disk.

    Raises:
        ValueError: It cannot be had.
    """
    from datasets import load_dataset

    try:
        return load_dataset(path, subset, split=split)
    except Exception as error:  # whatever datasets or the network says, the person must learn which key led there
        raise ValueError(
            f"{key}: the data set {path} (split {split}) cannot be loaded from the hub: {error}"
        ) from error


def column(documents: Iterable[Document], key: str, name: str, first: int = 1) -> Iterator[Any]:
    """A column of all documents.

    Args:
        documents: Of which the column is taken.
        key: In the config, which names the column.
        name: The column.
        first: Number of the first document, for messages.

    Raises:
        ValueError: A document does not have it, or has nothing in it.
    """
    for number, document in enumerate(documents, first):
        if name not in document:
            raise ValueError(f"{key}={name}: document {number} has no such column; it has {sorted(document)}")
        if document[name] is None:
            raise ValueError(f"{key}={name}: document {number} has nothing in it; remove such documents")
        yield document[name]
