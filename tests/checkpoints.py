"""Comparison of checkpoints."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

from sweeps_train.checkpoints.integrity import find_damage


def tensors_of(checkpoint: Path) -> dict[str, torch.Tensor]:
    return {
        f"{file.name} {name}": each
        for file in checkpoint.glob("*.safetensors")
        for name, each in load_file(file).items()
    }


def assert_same(one: Path, other: Path) -> None:
    """Two checkpoints are intact, and have the same files and tensors."""
    assert find_damage(one) is None
    assert find_damage(other) is None
    assert {file.name for file in one.iterdir()} == {file.name for file in other.iterdir()}
    before, after = tensors_of(one), tensors_of(other)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
