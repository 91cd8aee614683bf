"""Files of tensors in safetensors' format, memory-mapped: read without a copy, or overwritten in place."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sweeps_train.checkpoints.integrity import ChecksummedFile
from sweeps_train.compat.safetensors import TYPES

_NAMES = {dtype: name for name, dtype in TYPES.items()}
_LENGTH_BYTES = 8


@dataclass(frozen=True)
class TensorSpec:
    """Type and shape of a tensor in a file."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Size in bytes.

        >>> TensorSpec(torch.float32, (2, 3)).size
        24
        """
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def can_be_stored(tensor: torch.Tensor) -> bool:
    """Whether the format supports a tensor's dtype."""
    return tensor.dtype in _NAMES


def create(path: Path, specs: Mapping[str, TensorSpec]) -> None:
    """Write a file with space for tensors.

    Raises:
        OSError: There is no room for it.
    """
    header, size = _header(specs)
    with path.open("wb") as file:
        # In shared memory, a page that is written to without room for it would end the process.
        os.posix_fallocate(file.fileno(), 0, len(header) + size)
        file.write(header)


def write(path: Path, tensors: Mapping[str, torch.Tensor]) -> list[int]:
    """Write tensors into a file, and return its size and checksum."""
    specs = {name: spec_of(each) for name, each in tensors.items()}
    header, _ = _header(specs)
    with ChecksummedFile(path) as file:
        file.write(header)
        for name in _in_order(specs):
            file.write(tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return file.sum


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Return the dtype and full shape of a tensor."""
    return TensorSpec(tensor.dtype, tuple(tensor.shape))


def mapped(path: Path, *, shared: bool) -> dict[str, torch.Tensor]:
    """Return the tensors of a safetensors file, memory-mapped. If they are shared, writing to them changes the file.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is not in safetensors' format.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        entries: dict[str, dict[str, Any]] = json.loads(file.read(length))
    start = _LENGTH_BYTES + length
    content = torch.from_file(str(path), shared=shared, size=path.stat().st_size, dtype=torch.uint8)
    return {
        name: content[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]]
        .view(TYPES[entry["dtype"]])
        .view(entry["shape"])
        for name, entry in entries.items()
        if name != "__metadata__"
    }


def _header(specs: Mapping[str, TensorSpec]) -> tuple[bytes, int]:
    """Return the header of a file, and the size of the data after it."""
    entries, end = {}, 0
    for name in _in_order(specs):
        start, end = end, end + specs[name].size
        entries[name] = {
            "dtype": _NAMES[specs[name].dtype],
            "shape": list(specs[name].shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)  # so that each tensor begins at a multiple of its elements' size
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text, end


def _in_order(specs: Mapping[str, TensorSpec]) -> list[str]:
    return sorted(specs, key=lambda name: (-specs[name].dtype.itemsize, name))
