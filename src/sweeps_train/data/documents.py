"""Documents for language models: read from files or the hub, and split into training and held-out documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sweeps_train.compat import datasets as compat_datasets
from sweeps_train.config import TextData
from sweeps_train.data.data_files import Document, File, file_at, find_files, pieces_of, read_piece
from sweeps_train.data.sample_order import held_out_indices
from sweeps_train.data.standard_library import BUILTIN_DOCSTRINGS, docstrings, source_files


def read_documents(config: TextData) -> tuple[list[Document], list[Document]]:
    """Read training and held-out documents, in the data's own order.

    Raises:
        ValueError: Nothing was found, nothing is left for one of the two, or a type of file is unknown.
    """
    train, held_out = _read_splits(config)
    train, held_out = train[: config.max_train_documents], held_out[: config.max_eval_documents]
    check_splits(config, len(train), len(held_out))
    return train, held_out


def check_splits(config: TextData, num_train: int, num_held_out: int) -> None:
    """Raise ``ValueError`` if there are no training documents, or no held-out ones."""
    if not num_train:
        raise ValueError(f"data.path={config.path}: no documents to train on; give data with at least two documents")
    if not num_held_out:
        raise ValueError(
            f"data.path={config.path}: no documents to evaluate on; "
            "give data.eval_path, data.eval_split or a larger data.eval_fraction"
        )


def fingerprint(config: TextData) -> list[Any]:
    """Return JSON values that change whenever the result of ``read_documents`` may change.

    Raises:
        ValueError: Nothing was found.
    """
    train = _fingerprint("data.path", config.path, config, config.train_split)
    if config.eval_path is not None:
        split = config.eval_split or config.train_split
        return [train, _fingerprint("data.eval_path", config.eval_path, config, split)]
    if config.eval_split is not None:
        held_out = load_hub("data.eval_split", config.path, config, config.eval_split)
        return [train, compat_datasets.fingerprint(held_out)]
    return [train]


def _fingerprint(key: str, path: str, config: TextData, split: str) -> Any:
    """Return the name, size and modification time of every file; for a hub data set, its fingerprint in
    ``datasets``."""
    if path == BUILTIN_DOCSTRINGS:
        files: list[File] | None = [file_at(file) for file in source_files()]
    else:
        files = find_files(key, path)
    if files is None:
        return compat_datasets.fingerprint(load_hub(key, path, config, split))
    return [(file.location, file.size, file.modified_ns) for file in files]


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
        return train, list(load_hub("data.eval_split", config.path, config, config.eval_split))
    if held_out is not None:
        return train, held_out
    train_indices, eval_indices = held_out_indices(len(train), config.eval_fraction)
    return [train[index] for index in train_indices], [train[index] for index in eval_indices]


def _read(key: str, path: str, config: TextData, split: str) -> list[Document]:
    files = find_files(key, path)
    if files is None:
        return list(load_hub(key, path, config, split))
    lines = config.lines_are_documents
    pieces = (piece for file in files for piece in pieces_of(file, lines=lines))
    try:
        return [document for piece in pieces for document in read_piece(piece, lines=lines)]
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error


def load_hub(key: str, path: str, config: TextData, split: str) -> Any:
    """Load a split, given in slicing syntax, of a data set of the hub, which is downloaded once and mapped from this
    machine's disk. Messages name the config ``key``.

    Raises:
        ValueError: The data set cannot be loaded.
    """
    from datasets import load_dataset

    revision = config.revision if path == config.path else None
    try:
        return load_dataset(path, config.subset, split=split, revision=revision)
    except Exception as error:  # datasets and the network raise many types; the message must name the key
        raise ValueError(
            f"{key}: the data set {path} (split {split}) cannot be loaded from the hub: {error}"
        ) from error


def half_pair(text: str) -> str | None:
    """Describe an unpaired surrogate in a text, as truncated JSON may have; None if there is none. Tokenizers refuse it
    with an error about types."""
    half = next((each for each in text if "\ud800" <= each <= "\udfff"), None)
    if half is None:
        return None
    return (
        f"its text has half of a surrogate pair, {half!r}; replace such halves, as text.encode('utf-16', "
        "'surrogatepass').decode('utf-16', 'replace') does"
    )


def column(documents: Iterable[Document], key: str, name: str, first: int = 1) -> Iterator[Any]:
    """Yield a column of all documents. Messages name its config ``key``, and number the documents from ``first``.

    Raises:
        ValueError: A document lacks the column, or has null in it.

    Example:
        >>> list(column([{"text": "one"}, {"text": "two"}], "data.text_field", "text"))
        ['one', 'two']
    """
    for number, document in enumerate(documents, first):
        if name not in document:
            raise ValueError(f"{key}={name}: document {number} has no such column; it has {sorted(document)}")
        if document[name] is None:
            raise ValueError(f"{key}={name}: document {number} is empty; remove empty documents")
        yield document[name]
