"""Checkpoints: folders ``step-00000020`` with everything that an exact continuation of a training needs.

A checkpoint is written under a temporary name and renamed when it is complete.
"""

from __future__ import annotations

import functools
import json
import math
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sweeps_train.checkpoints.checkpoint_metrics import METRICS_FILE, read_metrics
from sweeps_train.checkpoints.integrity import clean_up, find_damage, finish, quarantine
from sweeps_train.checkpoints.training_state import STATE_FILE, TENSORS_FILE, own_tensors, write_state
from sweeps_train.compat.safetensors import checksummed_safetensors
from sweeps_train.config import TRAINING_CONFIG, CausalLM, TableData, TrainingConfig
from sweeps_train.config.better import Objective, as_losses, as_objectives
from sweeps_train.estimators.model import ESTIMATOR_FILE, load_estimator
from sweeps_train.files.atomic_write import unfinished
from sweeps_train.files.tensor_file import write
from sweeps_train.reports.progress import Progress

if TYPE_CHECKING:
    from sweeps_train.strategies.strategy import Strategy

TRAINING_FILE = "training.json"
"""File in a checkpoint with the ``TrainingConfig`` of its training."""
FILES = "files"
"""Folder in a checkpoint with exactly the files that a user's own function has saved."""


def write_checkpoint(
    root: Path,
    config: TrainingConfig,
    strategy: Strategy,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    metrics: dict[str, float] | None,
) -> Callable[[], None] | None:
    """Write the files of a checkpoint under a temporary name while all workers wait. Every worker must call it; rank 0
    writes. Return, on rank 0, a function that flushes them to the disk and gives the checkpoint its name; the training
    may continue before it is called.

    The files do not depend on the strategy or the number of workers, so that a training may continue with others.
    ``metrics`` are those that are reported at this step, if any.
    """
    workers = strategy.workers
    own, state = own_tensors(strategy, optimizer, strategy.saved_weights())
    states, weights, tensors = workers.gather(state), strategy.full_weights(), strategy.gather_full(own)
    if workers.rank != 0:
        return None
    path = checkpoint_path(root, progress.step)
    folder = unfinished(path)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with checksummed_safetensors(folder) as sums:
        strategy.task.save(folder, weights)
    write_training_config(folder, config)
    write_json(folder / METRICS_FILE, metrics)
    sums[TENSORS_FILE] = write(folder / TENSORS_FILE, tensors)
    sums[STATE_FILE] = write_state(folder, progress, strategy.precision.scaler.state_dict(), states)
    make_readable(folder)
    return functools.partial(finish, folder, path, sums)


def checkpoint_path(root: Path, step: int) -> Path:
    """Return the folder of a step's checkpoint."""
    return root / f"step-{step:08d}"


def load_model(folder: str | Path, *, merge: bool = False) -> Any:
    """Load the trained model in a checkpoint, on the CPU and in evaluation mode.

    Args:
        folder: A checkpoint: ``outputs/SWEEP/trials/TRIAL/step-00000020``, or one downloaded from MLflow.
        merge: Merge LoRA adapters into the base model, which gives a plain transformers model.

    Returns:
        For language models, a model of transformers or peft in the dtype of its files; for tables and estimators, a
        model whose method ``predict`` takes raw rows; otherwise a module that maps images of shape (batch, channels,
        height, width) to logits of shape (batch, classes).

    Raises:
        ValueError: The folder is not a checkpoint, or its base model cannot be loaded.

    Example:
        >>> model = load_model("outputs/digits-20261120-021500/trials/0003/step-00000200")  # doctest: +SKIP
    """
    folder = Path(folder)
    if (folder / ESTIMATOR_FILE).is_file():
        return load_estimator(folder)
    config = read_training_config(folder)
    if isinstance(config.model, CausalLM):
        from sweeps_train.models.causal_lm import build_causal_lm
        from sweeps_train.models.lora import merge_lora

        merges = merge and config.model.lora is not None
        # Adapters are merged into the base as it was before it was quantized.
        wanted = replace(config.model, quantization="none") if merges else config.model
        model = build_causal_lm(wanted, folder)
        if merges:
            model = merge_lora(model)  # type: ignore[arg-type] # of peft, since it has adapters
    elif isinstance(config.data, TableData):
        from sweeps_train.models.table import load_table_model

        model = load_table_model(config.model, folder)  # type: ignore[arg-type] # for tables, since the data is
    else:
        from sweeps_train.models.image import load_image_model

        model = load_image_model(config.model, folder)  # type: ignore[arg-type] # of images, since the data is
    return model.eval()


def read_training_config(folder: Path) -> TrainingConfig:
    """Read the config with which a checkpoint was trained.

    Args:
        folder: Folder of the checkpoint.

    Returns:
        The config.

    Raises:
        ValueError: The folder is not a checkpoint.

    Example:
        >>> read_training_config(Path("step-00000020"))
        Traceback (most recent call last):
        ValueError: step-00000020: is not a checkpoint of a built-in task (no training.json); load it with your own code
    """
    file = folder / TRAINING_FILE
    if not file.is_file():
        raise ValueError(
            f"{folder}: is not a checkpoint of a built-in task (no {TRAINING_FILE}); load it with your own code"
        )
    return TRAINING_CONFIG.validate_json(file.read_bytes())


def write_training_config(folder: Path, config: TrainingConfig) -> None:
    """Write the config of a training beside its model, for ``read_training_config``."""
    write_json(folder / TRAINING_FILE, TRAINING_CONFIG.dump_python(config, mode="json", by_alias=True))


def newest_intact(root: Path) -> tuple[Path | None, list[str]]:
    """Find the newest undamaged checkpoint in a folder, and rename damaged ones. Return the checkpoint, or None, and a
    description of the damage of each newer one.

    Raises:
        OSError: A checkpoint cannot be read now, but may be intact.
    """
    damages: list[str] = []
    for path in reversed(complete_checkpoints(root)):
        damage = find_damage(path)
        if damage is None:
            return path, damages
        damages.append(f"its checkpoint {path.name} is damaged and was renamed: {damage}")
        quarantine(path)
    return None, damages


def prepare_resume(root: Path, note: Callable[[str], None], held: Path | None = None) -> Path | None:
    """Remove unfinished files from a folder of checkpoints, and return the newest checkpoint, from which a training
    continues; rank 0 calls it. ``note`` tells the user about damaged checkpoints. If the newest one is ``held`` in
    memory, its files are not read."""
    clean_up(root)
    if held is not None and (complete := complete_checkpoints(root)) and complete[-1].absolute() == held:
        return complete[-1]
    newest, damages = newest_intact(root)
    for damage in damages:
        note(damage)
    if damages and newest is None:
        note("no intact checkpoint is left, so it trains from its first step")
    return newest


def best_checkpoint(root: str | Path, metric: str | Sequence[str], mode: str | Sequence[str]) -> Path | None:
    """Find the checkpoint with the best value of a metric; of equal ones, the earliest.

    Args:
        root: Folder of a training's checkpoints.
        metric: Name of the metric; of several, each further one decides between equal values of those before it.
        mode: Whether ``min`` or ``max`` is best, of each.

    Returns:
        The checkpoint's folder; None if no checkpoint has a value.

    Raises:
        KeyError: A checkpoint was saved without the metric, or the first of several.

    Example:
        >>> import tempfile
        >>> root = Path(tempfile.mkdtemp())
        >>> for step, loss in ((10, 0.5), (20, 0.3), (30, 0.4)):
        ...     (root / f"step-{step:08d}").mkdir()
        ...     write_json(root / f"step-{step:08d}" / METRICS_FILE, {"eval/loss": loss})
        >>> best_checkpoint(root, "eval/loss", "min").name
        'step-00000020'
    """
    return best_by(Path(root), as_objectives(metric, mode))


def best_by(root: Path, objectives: Sequence[Objective]) -> Path | None:
    """Find the checkpoint that is best by several objectives; see ``best_checkpoint``."""
    best: Path | None = None
    least: tuple[float, ...] = (math.inf,)
    for path in complete_checkpoints(root):
        metrics = read_metrics(path)
        if metrics:
            if objectives[0].metric not in metrics:
                raise KeyError(objectives[0].metric)
            losses = as_losses(metrics, objectives)
            if losses is not None and losses < least:
                best, least = path, losses
    return best


def complete_checkpoints(root: Path) -> list[Path]:
    """Return the complete checkpoints in a folder, oldest first."""
    found = [path for path in root.glob("step-*") if re.fullmatch(r"step-\d+", path.name)]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def write_json(file: Path, content: Any) -> None:
    """Write a value as indented JSON."""
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def make_readable(folder: Path) -> None:
    """Give all files the usual permissions: safetensors makes files private to their owner."""
    usual = (folder / TRAINING_FILE).stat().st_mode
    for file in folder.glob("*.safetensors"):
        file.chmod(usual)
