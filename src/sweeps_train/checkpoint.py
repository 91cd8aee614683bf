"""Checkpoints: folders ``step-00000020`` that hold everything from which a training goes on exactly.

A checkpoint is written under another name and renamed when it is complete; one that has its name is whole.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sweeps_train.config import TRAINING_CONFIG, CausalLM, TrainingConfig
from sweeps_train.integrity import damage, flush_folder, seal, set_aside
from sweeps_train.optimizer import load_optimizer_state, optimizer_state
from sweeps_train.progress import Progress
from sweeps_train.random_state import random_state, set_random_state

if TYPE_CHECKING:
    from torch import nn

    from sweeps_train.strategies import Strategy

TRAINING_FILE = "training.json"
"""The ``TrainingConfig``."""
METRICS_FILE = "metrics.json"
"""What was reported at this step; null where nothing was, between two evaluations."""
STATE_FILE = "training_state.pt"
"""Optimizer, gradient scaler, progress, and every worker's random states."""

UNFINISHED = ".unfinished"
"""Ends the name of a folder that is being written, or removed."""


def save_checkpoint(
    root: Path,
    config: TrainingConfig,
    strategy: Strategy,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    metrics: dict[str, float] | None,
) -> Path:
    """Saves a step; every worker must call it, and rank 0 writes. The same files whatever the strategy and the number
    of workers: a training may go on with others.

    Args:
        root: Folder of the run's checkpoints.
        config: The training.
        strategy: Its task's model (and tokenizer) is saved, the gradient scaler, and random states: all who have
            samples of their own have different ones.
        optimizer: Its moments are saved.
        progress: How far the training is.
        metrics: What is reported at this step, if it is.

    Returns:
        The checkpoint's folder, complete on rank 0.
    """
    workers = strategy.workers
    random_states = dict(workers.gather((strategy.stream, random_state(workers.device))))
    weights, moments = strategy.weights(), optimizer_state(optimizer, strategy)
    path = root / f"step-{progress.step:08d}"
    if workers.rank == 0:
        unfinished = path.with_name(path.name + UNFINISHED)
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        strategy.task.save(unfinished, weights)
        write_json(unfinished / TRAINING_FILE, TRAINING_CONFIG.dump_python(config, mode="json", by_alias=True))
        write_json(unfinished / METRICS_FILE, metrics)
        state = {
            **asdict(progress),
            "optimizer": moments,
            "scaler": strategy.precision.scaler.state_dict(),
            "random": [random_states[rank] for rank in sorted(random_states)],
        }
        torch.save(state, unfinished / STATE_FILE)
        _share(unfinished)
        finish(unfinished, path)
    return path


def finish(unfinished: Path, path: Path) -> None:
    """Gives a checkpoint that is wholly written its name."""
    seal(unfinished)
    unfinished.rename(path)
    flush_folder(path.parent)


def load_checkpoint(path: Path, optimizer: torch.optim.Optimizer, strategy: Strategy) -> Progress:
    """Restores all but the model, which ``build_task`` reads; every worker must call it.

    A worker that the checkpoint does not know, since there were fewer of them, keeps its present random states.

    Raises:
        FileNotFoundError: This worker does not see the checkpoint.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such checkpoint on this machine; all workers must share its folder")
    # Mapped: a worker reads the parts that are its own.
    state = torch.load(path / STATE_FILE, map_location="cpu", weights_only=True, mmap=True)
    load_optimizer_state(optimizer, state["optimizer"], strategy)
    if state["scaler"]:  # empty where no scaling was needed
        strategy.precision.scaler.load_state_dict(state["scaler"])
    if strategy.stream < len(state["random"]):
        set_random_state(state["random"][strategy.stream], strategy.workers.device)
    # An older checkpoint has fewer of them.
    return Progress(**{field.name: state[field.name] for field in fields(Progress) if field.name in state})


def load_model(folder: str | Path, *, merge: bool = False) -> nn.Module:
    """The trained model of a checkpoint, on the CPU and ready for inference.

    Args:
        folder: A checkpoint: ``outputs/SWEEP/trials/TRIAL/step-00000020``, or one that tracking has given back.
        merge: Fold LoRA adapters into the base model, which then is a plain transformers model.

    Raises:
        ValueError: The folder is no checkpoint, or its base model cannot be loaded.
    """
    folder = Path(folder)
    config = read_training_config(folder)
    if isinstance(config.model, CausalLM):
        from peft import PeftModel

        from sweeps_train.models.causal_lm import build_causal_lm

        model = build_causal_lm(config.model, folder)
        if merge and isinstance(model, PeftModel):
            model = model.merge_and_unload()
    else:
        from sweeps_train.models.image import load_image_model

        model = load_image_model(config.model, folder)
    return model.eval()


def read_training_config(folder: Path) -> TrainingConfig:
    """
    Raises:
        ValueError: The folder is no checkpoint.
    """
    file = folder / TRAINING_FILE
    if not file.is_file():
        raise ValueError(f"{folder} is no checkpoint: it has no {TRAINING_FILE}; give a folder step-00000020")
    return TRAINING_CONFIG.validate_json(file.read_bytes())


def read_metrics(path: Path) -> dict[str, float] | None:
    """What was reported at a checkpoint's step."""
    metrics: dict[str, float] | None = json.loads((path / METRICS_FILE).read_text(encoding="utf-8"))
    return metrics


def newest_intact(root: Path) -> tuple[Path | None, list[str]]:
    """The newest checkpoint that is what was written, from which a training may go on, and what was wrong with newer
    ones, which are set aside."""
    wrong: list[str] = []
    for path in reversed(complete_checkpoints(root)):
        found = damage(path)
        if found is None:
            return path, wrong
        wrong.append(f"its checkpoint {path.name} is damaged, and set aside: {found}")
        set_aside(path)
    return None, wrong


def best_checkpoint(root: str | Path, metric: str, mode: str) -> Path | None:
    """The checkpoint with the best value, the earlier of two equal ones; None if none has a value."""
    best, best_value = None, math.inf
    for path in complete_checkpoints(Path(root)):
        metrics = read_metrics(path)
        if metrics is not None:
            value = metrics[metric] if mode == "min" else -metrics[metric]
            if value < best_value:  # never true of NaN
                best, best_value = path, value
    return best


def remove_superseded(root: Path, keep: Sequence[str], metric: str, mode: str, *, finished: bool) -> None:
    """Removes checkpoints that need not be kept.

    Args:
        root: Folder of the run's checkpoints.
        keep: ``best``, ``last``, both or none. The last one stays in any case until the training is finished,
            which would go on from it, and beyond if nothing else could be kept.
        metric: What ``best`` is measured by.
        mode: Whether ``min`` or ``max`` is best.
        finished: The training has reached its end.
    """
    checkpoints = complete_checkpoints(root)
    best = best_checkpoint(root, metric, mode) if "best" in keep else None
    kept = {best} if finished and "last" not in keep and best is not None else {best, checkpoints[-1]}
    for path in checkpoints:
        if path not in kept:
            # Half removed, it would look like a checkpoint.
            condemned = path.with_name(path.name + UNFINISHED)
            path.rename(condemned)
            shutil.rmtree(condemned)


def remove_unfinished(root: Path) -> None:
    """Removes what a process that died while saving or removing has left."""
    for path in root.glob(f"step-*{UNFINISHED}"):
        shutil.rmtree(path)


def complete_checkpoints(root: Path) -> list[Path]:
    """The complete checkpoints in the folder of a run's checkpoints, oldest first."""
    found = [path for path in root.glob("step-*") if re.fullmatch(r"step-\d+", path.name)]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _share(folder: Path) -> None:
    """safetensors writes files that their owner alone can read; a team shares its checkpoints."""
    usual = (folder / TRAINING_FILE).stat().st_mode
    for file in folder.glob("*.safetensors"):
        file.chmod(usual)
