"""Replaces ``safetensors.torch.save_file`` in the libraries that write model files with it."""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import safetensors.torch
import torch

WRITERS = {
    "safetensors.torch": "save_file",
    "transformers.modeling_utils": "safe_save_file",
    "peft.peft_model": "safe_save_file",
}
"""Modules that call ``save_file``, with its name in each of them."""
TYPES: dict[str, torch.dtype] = {
    name: dtype for name, dtype in safetensors.torch._TYPES.items() if isinstance(dtype, torch.dtype)
}
"""Tensor dtypes by their names in a file."""


@contextmanager
def checksummed_safetensors(folder: Path) -> Iterator[dict[str, list[int]]]:
    """Compute the checksums of safetensors files from the tensors, whichever library writes them into a folder: reading
    large files again would take as long as writing them.

    Yields:
        Size in bytes and CRC-32 by the path within the folder, complete when the context ends.
    """
    sums: dict[str, list[int]] = {}
    write = safetensors.torch.save_file

    def save_file(tensors: dict[str, torch.Tensor], filename: Any, metadata: dict[str, str] | None = None) -> None:
        write(tensors, filename, metadata=metadata)
        file = Path(filename)
        if file.is_relative_to(folder):
            sums[str(file.relative_to(folder))] = _size_and_checksum(file, tensors)

    with ExitStack() as stack:
        for module, name in WRITERS.items():
            if module in sys.modules:  # a library that is not imported writes nothing
                stack.enter_context(patch.object(sys.modules[module], name, save_file))
        yield sums


def _size_and_checksum(file: Path, tensors: Mapping[str, torch.Tensor]) -> list[int]:
    """Return the size and CRC-32 of a file with these tensors. Only the file's header is read, for the order of the
    tensors."""
    with file.open("rb") as opened:
        length = opened.read(8)
        header = opened.read(int.from_bytes(length, "little"))
    size, checksum = len(length) + len(header), zlib.crc32(header, zlib.crc32(length))
    places: dict[str, list[int]] = {
        name: entry["data_offsets"] for name, entry in json.loads(header).items() if name != "__metadata__"
    }
    for name in sorted(places, key=places.__getitem__):
        content = tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        size, checksum = size + content.nbytes, zlib.crc32(content, checksum)
    return [size, checksum]
