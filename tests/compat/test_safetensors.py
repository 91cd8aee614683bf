"""Contract with the names under which libraries call safetensors: a failure says which has moved."""

from __future__ import annotations

import importlib
import zlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from sweeps_train.compat.safetensors import WRITERS, checksummed_safetensors


@pytest.mark.parametrize("module", WRITERS)
def test_each_library_calls_the_function_that_writes_by_this_name(module: str) -> None:
    assert getattr(importlib.import_module(module), WRITERS[module]) is save_file


def test_checksums_are_those_of_the_files_whatever_their_tensors(tmp_path: Path) -> None:
    import safetensors.torch

    tensors = {
        "b": torch.randn(3, 5, dtype=torch.bfloat16),
        "a": torch.arange(7),
        "empty": torch.zeros(0, 4),
        "scalar": torch.tensor(2.5),
        "flags": torch.tensor([True, False, True]),
    }
    with checksummed_safetensors(tmp_path) as sums:
        safetensors.torch.save_file(tensors, tmp_path / "one.safetensors", metadata={"format": "pt"})
        safetensors.torch.save_file({"a": tensors["a"]}, str(tmp_path / "two.safetensors"))
        (tmp_path.parent / "elsewhere").mkdir(exist_ok=True)
        safetensors.torch.save_file({"a": tensors["a"]}, tmp_path.parent / "elsewhere" / "three.safetensors")
    assert safetensors.torch.save_file is save_file
    assert set(sums) == {"one.safetensors", "two.safetensors"}
    for name, (size, checksum) in sums.items():
        content = (tmp_path / name).read_bytes()
        assert (len(content), zlib.crc32(content)) == (size, checksum)
    assert torch.equal(load_file(tmp_path / "one.safetensors")["b"], tensors["b"])
