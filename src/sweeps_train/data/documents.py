"""Documents for language models: read from files or the hub, and split into training and held-out documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from sweeps_train.compat import datasets as compat_datasets
from sweeps_train.config import TextData
from sweeps_train.data.data_files import Document, File, file_at, find_files, pieces_of, read_piece
from sweeps_train.data.sample_order import held_out_indices
from sweeps_train.data.standard_library import BUILTIN_DOCSTRINGS, docstrings, source_files

Role = Literal["train", "eval", "both"]


@dataclass(frozen=True)
class Source:
    """Documents to train on, to hold out, or to split into both."""

    role: Role
    key: str
    """Config key that names them."""
    path: str
    files: tuple[File, ...] | None
    """Files to read directly; None if ``datasets`` loads them: a hub data set or a folder with splits. The other fields
    then apply."""
    split: str
    """Name of the split, or a slice of it, such as ``train[:90%]``."""
    subset: str | None
    revision: str | None
    lines: bool
    """Whether each line of a text file is a document."""


def sources(config: TextData) -> list[Source]:
    """Find the files or hub data sets of a config, with those that are only held out first.

    Raises:
        ValueError: Nothing was found.
    """

    def source(role: Role, key: str, path: str, files: list[File] | None, split: str) -> Source:
        revision = config.revision if path == config.path else None
        found = None if files is None else tuple(files)
        return Source(role, key, path, found, split, config.subset, revision, config.lines_are_documents)

    held_out: list[Source] = []
    if config.eval_path is not None:
        files = find_files("data.eval_path", config.eval_path)
        split = config.eval_split or config.train_split
        held_out = [source("eval", "data.eval_path", config.eval_path, files, split)]
    elif config.eval_split is not None:
        # ``datasets`` also finds the splits of a folder, of which ``find_files`` would train on all.
        return [
            source("eval", "data.eval_split", config.path, None, config.eval_split),
            source("train", "data.path", config.path, None, config.train_split),
        ]
    is_builtin = config.path == BUILTIN_DOCSTRINGS
    files = [file_at(file) for file in source_files()] if is_builtin else find_files("data.path", config.path)
    role: Role = "train" if held_out else "both"
    return [*held_out, source(role, "data.path", config.path, files, config.train_split)]


def fingerprint(config: TextData) -> list[Any]:
    """Return JSON values that change whenever the result of ``read_documents`` may change: the name, size and
    modification time of every file; for a hub data set, its fingerprint in ``datasets``.

    Raises:
        ValueError: Nothing was found.
    """
    return [
        compat_datasets.fingerprint(load_hub(each))
        if each.files is None
        else [(file.location, file.size, file.modified_ns) for file in each.files]
        for each in sources(config)
    ]


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
        fix = "give data with at least two documents"
        if config.path.endswith(".txt") and not config.lines_are_documents:
            fix = "a .txt file is one document; give data.eval_path, or set data.lines_are_documents=true"
        raise ValueError(f"data.path={config.path}: no documents to train on; {fix}")
    if not num_held_out:
        raise ValueError(
            f"data.path={config.path}: no documents to evaluate on; "
            "give data.eval_path, data.eval_split or a larger data.eval_fraction"
        )


def _read_splits(config: TextData) -> tuple[list[Document], list[Document]]:
    read = {each.role: _read(each) for each in sources(config)}
    if "both" not in read:
        return read["train"], read["eval"]
    documents = read["both"]
    if config.path == BUILTIN_DOCSTRINGS:
        return documents, [{"text": text} for text in docstrings("eval")]
    train, held_out = held_out_indices(len(documents), config.eval_fraction)
    return [documents[index] for index in train], [documents[index] for index in held_out]


def _read(source: Source) -> list[Document]:
    if source.files is None:
        return list(load_hub(source))
    if source.path == BUILTIN_DOCSTRINGS:
        return [{"text": text} for text in docstrings("train")]
    pieces = (piece for file in source.files for piece in pieces_of(file, lines=source.lines))
    try:
        return [document for piece in pieces for document in read_piece(piece, lines=source.lines)]
    except ValueError as error:
        raise ValueError(f"{source.key}: {error}") from error


def load_hub(source: Source) -> Any:
    """Load a hub data set, which is downloaded once and mapped from this machine's disk, or a split of a folder.

    Raises:
        ValueError: The data set cannot be loaded.
    """
    from datasets import load_dataset, load_dataset_builder

    try:
        path = source.path if "://" in source.path else str(Path(source.path).expanduser())
        load = partial(load_dataset, path, source.subset, split=source.split, revision=source.revision)
        of_texts = Path(path).is_dir() and hasattr(load_dataset_builder(path, source.subset).config, "sample_by")
        if not of_texts:
            return load()
        if not source.lines:
            return load(sample_by="document")
        # Empty lines are no documents.
        return load(sample_by="line").filter(lambda text: bool(text.strip()), input_columns="text")
    except Exception as error:  # datasets and the network raise many types; the message must name the key
        raise ValueError(
            f"{source.key}: the data set {source.path} (split {source.split}) cannot be loaded: {error}"
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
