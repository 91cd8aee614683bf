"""Token arrays larger than memory: computed in pieces, in parallel on a Ray cluster, and written to be memory-mapped.

Ray Data (2.60) reads and maps in parallel, but cannot resume at a sample, and distributes the data differently when the
number of workers changes. So it only does the tokenizing; the order of samples is ours (``SampleOrder``), over files in
which every sample has a fixed position.

If a process dies while making a corpus, the pieces that were finished are not tokenized again.
"""

from __future__ import annotations

import io
import logging
import pickle
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sweeps_train.data.array_cache import Arrays
from sweeps_train.files.atomic_write import atomic_write

_log = logging.getLogger(__name__)

Part = TypeVar("Part")

_ENOUGH_FOR_RAY = 4
"""Smallest number of pieces for which Ray Data is started, which takes a second."""
_LOG_EVERY = 50


def write_corpus(
    folder: Path,
    pieces: Sequence[Part],
    make: Callable[[Part], Arrays],
    enough: Callable[[dict[str, int]], bool],
) -> None:
    """Write the arrays of all pieces, joined in order, into a folder, each as ``NAME.npy``.

    Args:
        folder: May have pieces that an earlier process has finished; they are not made again.
        pieces: Parts of the data, in order.
        make: Makes the arrays of a piece, with the same names for each; also runs in other processes. Arrays whose name
            ends in ``ends`` hold positions in the piece's array ``tokens``.
        enough: Whether the pieces so far suffice, given the lengths of their arrays.

    Raises:
        ValueError: A piece cannot be made.
    """
    files = [folder / f"piece-{index:06d}.npz" for index in range(len(pieces))]
    lengths = Counter[str]()
    read = 0

    def done() -> bool:
        nonlocal read
        while read < len(files) and files[read].exists() and not enough(lengths):
            lengths.update(_lengths(files[read]))
            read += 1
        return read == len(files) or (read > 0 and enough(lengths))

    is_done = done()
    todo = [] if is_done else [(index, piece) for index, piece in enumerate(pieces) if not files[index].exists()]
    for count, (index, content) in enumerate(_contents(todo, make), 1):
        with atomic_write(files[index]) as temporary:
            temporary.write_bytes(content)
        if count % _LOG_EVERY == 0:
            _log.info("%d of %d pieces are tokenized", count, len(todo))
        if done():
            break
    _join(folder, files[:read], lengths)


def _contents(todo: Sequence[tuple[int, Part]], make: Callable[[Part], Arrays]) -> Iterator[tuple[int, bytes]]:
    """Yield the index and file content of each piece, in any order."""
    if len(todo) < _ENOUGH_FOR_RAY or not _ray_runs():
        for index, piece in todo:
            yield index, _packed_arrays(make(piece))
        return
    import ray
    import ray.data

    def work(row: dict[str, Any]) -> dict[str, Any]:
        piece = pickle.loads(row["piece"])  # noqa: S301 - written below
        try:
            return {"index": row["index"], "content": _packed_arrays(make(piece)), "error": ""}
        except ValueError as error:  # passed on as text: Ray would add a long traceback
            return {"index": row["index"], "content": b"", "error": str(error)}

    # num_cpus=0: the CPUs are reserved by the workers that wait for these arrays.
    at_once = max(1, min(len(todo), int(ray.cluster_resources().get("CPU", 1))))  # type: ignore[no-untyped-call]
    rows = [{"index": index, "piece": pickle.dumps(piece)} for index, piece in todo]
    made = ray.data.from_items(rows, override_num_blocks=len(rows)).map(work, num_cpus=0, concurrency=at_once)
    for row in made.iter_rows():
        if row["error"]:
            raise ValueError(row["error"])
        yield row["index"], row["content"]


def _ray_runs() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _packed_arrays(arrays: Arrays) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type] # its stubs know no names but those of options
    return buffer.getvalue()


def _lengths(file: Path) -> dict[str, int]:
    """Return the lengths of the arrays in a file, from their headers."""
    lengths = {}
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            with archive.open(name) as opened:
                np.lib.format.read_magic(opened)
                shape, _, _ = np.lib.format.read_array_header_1_0(opened)
                lengths[name.removesuffix(".npy")] = shape[0]
    return lengths


def _join(folder: Path, files: Sequence[Path], lengths: Mapping[str, int]) -> None:
    """Join the pieces into one file for each array, whose total length is given by name, and delete them."""
    joined: Arrays = {}
    at = dict.fromkeys(lengths, 0)
    for file in files:
        with np.load(file) as arrays:
            first_token = {name: at[name] for name in at if name.endswith("tokens")}
            for name in arrays.files:
                values = arrays[name]
                if name not in joined:
                    joined[name] = np.lib.format.open_memmap(
                        folder / f"{name}.npy", mode="w+", dtype=values.dtype, shape=(lengths[name],)
                    )
                if name.endswith("ends"):
                    values = values + first_token[name.removesuffix("ends") + "tokens"]
                joined[name][at[name] : at[name] + len(values)] = values
                at[name] += len(values)
    for array in joined.values():
        array.flush()  # type: ignore[attr-defined] # it is a memmap
    for file in folder.glob("piece-*"):
        file.unlink()
