"""Layout of a snapshot: its files, and which worker writes which part of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from sweeps_train.checkpoints.training_state import TENSORS_FILE
from sweeps_train.compat.torch import local_shard
from sweeps_train.files.tensor_file import TensorSpec, create, mapped, spec_of
from sweeps_train.memory.machine_memory import available_memory, machine_memory

LEFT_FREE = 0.1
"""Part of the memory of the machine, or of the container, that a snapshot leaves free."""
_MODEL = "model:"
"""Prefix of the weights' names, which tells them from those of the state's tensors."""

Tensors = Mapping[str, torch.Tensor]
Place = tuple[slice, ...]


def named_apart(state: Tensors, weights: Tensors) -> dict[str, torch.Tensor]:
    """Merge state tensors and model weights into one mapping, under distinct names."""
    return {**state, **{f"{_MODEL}{name}": each for name, each in weights.items()}}


@dataclass(frozen=True)
class Share:
    """One worker's part of a snapshot."""

    is_here: bool
    """Whether the worker is on the first worker's machine, and therefore overwrites the files itself."""
    specs: dict[str, TensorSpec]
    """Types and full shapes of the state's tensors of which the worker has a part."""
    places: dict[str, Place]
    """Place of the worker's part of each tensor."""
    problem: str | None
    """Reason why the worker has no space for its parts; None if it has."""

    @classmethod
    def of(
        cls, state: Tensors, weights: Tensors, place_of: Callable[[torch.Tensor], Place | None], *, is_here: bool
    ) -> Share:
        """Describe this worker's part: its tensors of the state and weights of the model, or shards of them.
        ``place_of`` returns the place of a shard in its full tensor, or None if another worker saves it; ``is_here``
        says whether this worker is on the first worker's machine."""
        tensors = named_apart(state, weights)
        places = {name: place for name, each in tensors.items() if (place := place_of(each)) is not None}
        size = sum(local_shard(tensors[name]).nbytes for name in places)
        problem = None if is_here else lack_of_memory(size * int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
        return cls(is_here, {name: spec_of(each) for name, each in state.items() if name in places}, places, problem)


@dataclass(frozen=True)
class InFile:
    """Position of a weight in the model's files."""

    file: str
    name: str
    dtype: torch.dtype


def lack_of_memory(size: int) -> str | None:
    """Return the reason why this machine has no space for this many bytes; None if it has."""
    available = available_memory()
    if size <= available - LEFT_FREE * machine_memory():
        return None
    return f"a snapshot needs {size / 2**20:,.1f} MiB, and {available / 2**20:,.1f} MiB are free"


def create_files(
    folder: Path, specs: Mapping[str, TensorSpec], model_size: int, save_model: Callable[[Path], object]
) -> None:
    """Write the files of a new snapshot: those of the model, by ``save_model``, and one with room for all tensors of
    the state.

    Raises:
        OSError: There is no room for them.
    """
    problem = lack_of_memory(model_size + sum(each.size for each in specs.values()))
    if problem is not None:
        raise OSError(problem)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    create(folder / TENSORS_FILE, specs)
    save_model(folder)


def find_weights(folder: Path, weights: Tensors, frozen: Collection[str]) -> dict[str, InFile] | None:
    """Find the full weights in the model's files, if all of them can be overwritten in place.

    Libraries may write weights under other names, or transformed. So the files that were just written are compared with
    the weights. ``frozen`` are the names in the files of weights that are never overwritten.
    """
    # Files of peft leave out the name of the only adapter, ``default``; all others have the model's own names.
    names = {name.replace(".default.", "."): name for name in weights} | {name: name for name in weights}
    found = {}
    for path in sorted(folder.rglob("*.safetensors")):
        if path.name == TENSORS_FILE:
            continue
        for name, written in mapped(path, shared=True).items():
            if name not in names and name not in frozen:
                return None
            if name in names:
                if not _fits(written, weights[names[name]]):
                    return None
                found[names[name]] = InFile(str(path.relative_to(folder)), name, written.dtype)
    return found


def map_files(folder: Path, weights: Mapping[str, InFile]) -> dict[str, torch.Tensor]:
    """Return the tensors of a snapshot's files, memory-mapped: writing to them changes the files."""
    files = {name: mapped(folder / name, shared=True) for name in {each.file for each in weights.values()}}
    state = mapped(folder / TENSORS_FILE, shared=True)
    return named_apart(state, {name: files[each.file][each.name] for name, each in weights.items()})


def buffers(tensors: Tensors, share: Share, weights: Mapping[str, InFile], *, pinned: bool) -> dict[str, torch.Tensor]:
    """Allocate the memory into which a worker copies its parts before sending them, in the dtypes of the files."""
    types = {name: each.dtype for name, each in share.specs.items()}
    types |= {f"{_MODEL}{name}": each.dtype for name, each in weights.items()}
    return {
        name: torch.empty(local_shard(tensors[name]).shape, dtype=types[name], pin_memory=pinned)
        for name in share.places
        if name in types
    }


def _fits(target: torch.Tensor, source: torch.Tensor) -> bool:
    return target.shape == source.shape and torch.equal(target, source.detach().to("cpu", target.dtype))
