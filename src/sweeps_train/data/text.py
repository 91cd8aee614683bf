"""Text as samples: read, tokenized once on each machine, and cut into sequences."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import logging
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from sweeps_train.compat import datasets as compat_datasets
from sweeps_train.config import TextData
from sweeps_train.data.array_cache import Arrays, cached_arrays
from sweeps_train.data.corpus import write_corpus
from sweeps_train.data.data_files import Document, Piece, pieces_of, read_piece
from sweeps_train.data.documents import Role, Source, check_splits, fingerprint, load_hub, read_documents, sources
from sweeps_train.data.encoder import Encoder
from sweeps_train.data.packing import PackedSamples, TextSamples, to_arrays
from sweeps_train.files.cache_folder import cache_folder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_log = logging.getLogger(__name__)

_ROWS_A_PIECE = 10_000
"""Rows of a hub data set in a piece."""

_CUTTING_OPTIONS = ("sequence_length", "isolate_documents")
"""Options that change how packed tokens are cut into sequences, but not the tokens."""


def build_text_samples(
    config: TextData,
    tokenizer: PreTrainedTokenizerBase,
    max_positions: int | None,
    num_embeddings: int | None = None,
) -> tuple[TextSamples | PackedSamples, TextSamples | PackedSamples]:
    """Build training and held-out sequences for a model with at most ``max_positions`` tokens in a sequence, and
    embeddings for ``num_embeddings`` tokens; None for no limit.

    Raises:
        ValueError: The data or the sequence length cannot be used.
    """
    if max_positions is not None and config.sequence_length > max_positions:
        raise ValueError(
            f"data.sequence_length={config.sequence_length} is longer than the {max_positions} positions of the model; "
            f"use at most {max_positions}"
        )
    encoder = Encoder(tokenizer, config)
    pad_token = tokenizer.pad_token_id
    if not isinstance(pad_token, int) or (num_embeddings is not None and pad_token >= num_embeddings):
        pad_token = encoder.end
    key = _dependencies(config, tokenizer)
    arrays = _streamed(config, encoder, key) if config.streaming else _in_memory(config, encoder, key)
    train = _first(arrays, "train.", config.max_train_documents)
    held_out = _first(arrays, "eval.", config.max_eval_documents)
    return _samples(config, train, pad_token), _samples(config, held_out, pad_token, is_held_out=True)


def _samples(
    config: TextData, arrays: Arrays, pad_token: int, *, is_held_out: bool = False
) -> TextSamples | PackedSamples:
    samples: TextSamples | PackedSamples
    if config.packing:
        samples = PackedSamples(arrays, config.sequence_length, pad_token, isolated=config.isolate_documents)
    else:
        # Held-out samples are always read in the same order; those for training in a random one.
        samples = TextSamples(arrays, pad_token, longest_first=is_held_out and config.group_by_length)
        if samples.num_left_out:
            _log.warning(
                "%d of %d sequences have no token that the loss counts within data.sequence_length=%d, "
                "and are left out",
                samples.num_left_out, samples.num_left_out + len(samples), config.sequence_length,
            )  # fmt: skip
    # The end of an isolated document that is empty cannot be predicted from another document.
    if len(samples) == 0 or (is_held_out and samples.units(range(len(samples))) == 0):
        has_own = is_held_out and config.eval_path is not None
        source = f"data.eval_path={config.eval_path}" if has_own else f"data.path={config.path}"
        raise ValueError(
            f"{source}: nothing to learn from within data.sequence_length={config.sequence_length}; "
            "raise it, or check whether the text is empty"
        )
    return samples


def _in_memory(config: TextData, encoder: Encoder, key: Any) -> Arrays:
    """Return the arrays of both splits from the cache; if it cannot be written, make them in this process."""

    @functools.cache
    def made() -> Arrays:
        return _arrays(config, encoder, zip(("train", "eval"), read_documents(config), strict=True))

    of_data: list[Exception] = []

    def write(folder: Path) -> None:
        try:
            arrays = made()
        except Exception as error:
            of_data.append(error)
            raise
        for name, values in arrays.items():
            np.save(folder / f"{name}.npy", values)

    try:
        return cached_arrays("text", key, write, has_checksums=True)
    except (OSError, RuntimeError) as error:
        if error in of_data:
            raise  # not of the cache
        _log.warning("no cache for text (%s); set SWEEPS_CACHE to a folder that can be written", error)
        return made()


def _arrays(config: TextData, encoder: Encoder, splits: Iterable[tuple[str, Iterable[Document]]]) -> Arrays:
    arrays = (
        (split, to_arrays(encoder.encode(documents), encoder.vocabulary, packed=config.packing))
        for split, documents in splits
    )
    return {f"{split}.{name}": values for split, named in arrays for name, values in named.items()}


# --- larger than memory --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _HubRows:
    """Consecutive rows of a hub data set."""

    source: Source
    version: str
    """Fingerprint of the data set in ``datasets``."""
    start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.source.path} [{self.start}:{self.stop}]"


def _streamed(config: TextData, encoder: Encoder, key: Any) -> Arrays:
    """Compute the arrays of ``_in_memory`` in pieces, only a few of which are in memory at a time."""

    def make(piece: tuple[Role, Piece | _HubRows]) -> Arrays:
        role, source = piece
        try:
            train, held_out = _split(config, _documents(config, source), role)
            return _arrays(config, encoder, [("train", train), ("eval", held_out)])
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from error

    most_train = config.max_train_documents
    splits = config.eval_path is None and config.eval_split is None
    fewest_held_out = (config.max_eval_documents or 1) if splits else 0

    def enough(lengths: dict[str, int]) -> bool:
        num_train, num_eval = lengths.get("train.ends", 0), lengths.get("eval.ends", 0)
        return most_train is not None and num_train >= most_train and num_eval >= fewest_held_out

    def write(folder: Path) -> None:
        # Held-out sources come first: max_train_documents may need only some pieces of the others.
        pieces = [(source.role, piece) for source in sources(config) for piece in _pieces_of(source)]
        write_corpus(folder, pieces, make, enough)

    try:  # without checksums: to verify them would take as long as an epoch
        arrays = cached_arrays("corpus", key, write, has_checksums=False)
    except OSError as error:
        raise ValueError(
            f"data.streaming=true: {cache_folder()} cannot be written ({error}); "
            "set SWEEPS_CACHE to a folder with space for the tokens, 2 or 4 bytes each"
        ) from error
    # Empty files have no pieces, and so no arrays.
    check_splits(config, len(arrays.get("train.ends", ())), len(arrays.get("eval.ends", ())))
    return arrays


def _pieces_of(source: Source) -> Iterator[Piece | _HubRows]:
    if source.files is None:
        data_set = load_hub(source)
        for start in range(0, len(data_set), _ROWS_A_PIECE):
            stop = min(start + _ROWS_A_PIECE, len(data_set))
            yield _HubRows(source, compat_datasets.fingerprint(data_set), start, stop)
    for file in source.files or ():
        yield from pieces_of(file, lines=source.lines)


def _documents(config: TextData, piece: Piece | _HubRows) -> Iterator[Document]:
    if isinstance(piece, Piece):
        return read_piece(piece, lines=config.lines_are_documents)
    return iter(_hub_data(piece.source, piece.version).select(range(piece.start, piece.stop)))


@functools.lru_cache(maxsize=1)  # each call asks the hub several times
def _hub_data(source: Source, expected: str) -> Any:
    """Load a hub data set for all of its pieces.

    Raises:
        ValueError: It cannot be loaded, or is another version.
    """
    data_set = load_hub(source)
    if compat_datasets.fingerprint(data_set) != expected:
        raise ValueError(
            f"{source.key}={source.path}: is another version than at the start; run the trial again, and set "
            "data.revision if it is on the hub"
        )
    return data_set


def _split(config: TextData, documents: Iterator[Document], role: Role) -> tuple[Iterable[Document], list[Document]]:
    """Split the documents of a piece into training and held-out ones."""
    if role == "train":
        return documents, []
    if role == "eval":
        return [], list(documents)
    held_out: list[Document] = []

    def train() -> Iterator[Document]:
        for document in documents:
            if _is_held_out(config, document):
                held_out.append(document)
            else:
                yield document

    return train(), held_out  # the list is filled while the iterator is read


def _is_held_out(config: TextData, document: Document) -> bool:
    """Whether a document is held out, by a hash of its content, so that equal documents are in the same split though
    their addresses differ."""
    read = sorted((name, document.get(name)) for name in config.columns.values())
    digest = hashlib.blake2b(repr(read).encode(), digest_size=8).digest()
    return int.from_bytes(digest) < config.eval_fraction * 2**64


def _first(arrays: Arrays, split: str, documents: int | None) -> Arrays:
    """Return the arrays of a split by their names in it, cut to its first documents."""
    of_split = {name.removeprefix(split): values for name, values in arrays.items() if name.startswith(split)}
    ends = of_split["ends"]
    if documents is None or len(ends) <= documents:
        return of_split
    tokens = int(ends[documents - 1])
    lengths = {"tokens": tokens, "counted": tokens, "left_out": None, "largest": None}
    return {name: values[: lengths.get(name, documents)] for name, values in of_split.items()}


# --- cache key -----------------------------------------------------------------------------------------------


def _dependencies(config: TextData, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return everything that the arrays depend on, including this code."""
    code = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        code.update(file.read_bytes())
    irrelevant = ("loader", "group_by_length", *(_CUTTING_OPTIONS if config.packing else ()))
    return {
        "data": {name: value for name, value in dataclasses.asdict(config).items() if name not in irrelevant},
        "sources": fingerprint(config),
        "tokenizer": _tokenizer_fingerprint(tokenizer),
        "code": code.hexdigest(),
        "python": sys.version,
        "libraries": {name: version(name) for name in ("transformers", "tokenizers", "datasets")},
    }


def _tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a hash of a tokenizer's files and of its class, since some tokenizers are written in Python."""
    content = hashlib.sha256(f"{type(tokenizer).__module__}.{type(tokenizer).__qualname__}".encode())
    with TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        for file in sorted(Path(folder).rglob("*")):
            if file.is_file():
                content.update(file.name.encode())
                content.update(file.read_bytes())
    return content.hexdigest()
