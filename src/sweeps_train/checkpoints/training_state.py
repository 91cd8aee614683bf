"""The state of a training in a checkpoint, in addition to the model's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sweeps_train.checkpoints.integrity import ChecksummedFile
from sweeps_train.files.tensor_file import mapped
from sweeps_train.reports.progress import Progress
from sweeps_train.steps.optimizer import OptimizerState, load_optimizer_state, own_state
from sweeps_train.steps.trained_types import SHORT

if TYPE_CHECKING:
    from sweeps_train.strategies.strategy import Strategy

STATE_FILE = "training_state.pt"
"""File in a checkpoint with progress, gradient scaler, the random states of all workers, and the optimizer state except
its tensors."""
TENSORS_FILE = "training_state.safetensors"
"""File in a checkpoint with the optimizer's tensors, named ``KEY:PARAMETER``, and trained weights that the model's
files store in a smaller dtype."""
STATE_FILES = (STATE_FILE, TENSORS_FILE)
_TRAINED_WEIGHT = "trained weight"


@dataclass(frozen=True)
class WorkerState:
    """Small parts of the state that differ between workers."""

    stream: int
    """Id of the worker's stream of random numbers."""
    random: dict[str, Any]
    plain: OptimizerState
    """Values of the optimizer's state other than tensors, by parameter and key."""


def own_tensors(
    strategy: Strategy, optimizer: torch.optim.Optimizer, weights: dict[str, torch.Tensor]
) -> tuple[dict[str, torch.Tensor], WorkerState]:
    """Return this worker's state: tensors, or its shards of them, by their names in ``TENSORS_FILE``; and everything
    else. ``weights`` are the result of ``strategy.saved_weights``.

    Raises:
        ValueError: The state of a user's own optimizer cannot be saved.
    """
    tensors, plain = own_state(optimizer, strategy)
    named = {f"{key}:{name}": each for (name, key), each in tensors.items()}
    rounded = [name for name, dtype in strategy.task.stored_types.items() if dtype in SHORT and name in weights]
    named |= {f"{_TRAINED_WEIGHT}:{name}": weights[name] for name in rounded}
    return named, WorkerState(strategy.capabilities.random_stream, strategy.random_numbers.state(), plain)


def write_state(
    folder: Path, progress: Progress, scaler: Mapping[str, Any], states: Sequence[WorkerState]
) -> list[int]:
    """Write ``STATE_FILE`` with the states of all workers, and return its size and checksum."""
    plain: OptimizerState = {}
    for worker in states:
        for name, values in worker.plain.items():
            plain.setdefault(name, {}).update(values)
    random_states = {worker.stream: worker.random for worker in states}
    state = {
        **asdict(progress),
        "optimizer": plain,
        "scaler": scaler,
        "random": [random_states[stream] for stream in sorted(random_states)],
    }
    with ChecksummedFile(folder / STATE_FILE) as file:
        torch.save(state, file)  # type: ignore[arg-type] # it is only written to
    return file.sum


def load_state(folder: Path, optimizer: torch.optim.Optimizer, strategy: Strategy) -> Progress:
    """Restore everything except the model's files, which ``build_task`` reads, and return the progress. Every worker
    must call it. One without a random state in the checkpoint, which fewer workers have saved, keeps its current one.

    Raises:
        FileNotFoundError: This worker does not see the checkpoint.
    """
    if not folder.exists():
        raise FileNotFoundError(f"{folder}: no such checkpoint on this machine; all workers must share its folder")
    state, tensors = _read(folder), _tensors(folder)
    moments: OptimizerState = state["optimizer"]
    for name, each in tensors.items():
        key, _, parameter = name.partition(":")
        if key != _TRAINED_WEIGHT:
            moments.setdefault(parameter, {})[key] = each
    _restore_weights(state, tensors, strategy)
    load_optimizer_state(optimizer, moments, strategy)
    if state["scaler"]:  # empty where no scaling was needed
        strategy.precision.scaler.load_state_dict(state["scaler"])
    stream = strategy.capabilities.random_stream
    if stream < len(state["random"]):
        strategy.random_numbers.restore(state["random"][stream])
    return _progress(state)


def load_trained_weights(folder: Path, strategy: Strategy) -> None:
    """Restore weights that are stored in a smaller dtype in the model's files than the one they were trained in."""
    _restore_weights(_read(folder), _tensors(folder), strategy)


def read_progress(folder: Path) -> Progress:
    """Return the position of a checkpoint in its training."""
    return _progress(_read(folder))


def _read(folder: Path) -> dict[str, Any]:
    # Mapped, so that a worker reads only its own shards of what earlier versions have there.
    state: dict[str, Any] = torch.load(folder / STATE_FILE, map_location="cpu", weights_only=True, mmap=True)
    return state


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    file = folder / TENSORS_FILE
    return mapped(file, shared=False) if file.exists() else {}  # checkpoints of earlier versions have none


def _restore_weights(state: dict[str, Any], tensors: dict[str, torch.Tensor], strategy: Strategy) -> None:
    weights: dict[str, torch.Tensor] = dict(state.get("weights", {}))  # in checkpoints of earlier versions
    for name, each in tensors.items():
        key, _, parameter = name.partition(":")
        if key == _TRAINED_WEIGHT:
            weights[parameter] = each
    with torch.no_grad():
        for name, full in weights.items():
            if name in strategy.parameters:  # a worker of a pipeline has some of them
                strategy.parameters[name].copy_(strategy.shard_like(name, full))


def _progress(state: dict[str, Any]) -> Progress:
    # Checkpoints of earlier versions have fewer fields.
    return Progress(**{field.name: state[field.name] for field in fields(Progress) if field.name in state})
