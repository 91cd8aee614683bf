"""Default name of a registered model, and checks of a requested model before anything is trained."""

from __future__ import annotations

import re
from pathlib import Path

from sweeps.config import SweepConfig, UserTask
from sweeps.errors import ConfigError, UserError
from sweeps_train.config import CausalLM, FunctionTask

FORBIDDEN = r"[/:.%\"'\\]"
"""Characters that a model's name must not contain."""


def retrained_model(config: SweepConfig, name: str | None, conf: str) -> str | None:
    """Return the name under which a retraining registers its model: the given one, or the default, made from the conf's
    name. None if it does not register one."""
    if name is not None or why_not_registered(config) is not None:
        return name
    return re.sub(FORBIDDEN, "-", conf)


def check_model(
    config: SweepConfig,
    name: str | None,
    alias: str | None,
    folder: Path | None,
    *,
    merged: bool,
    is_trained: bool = False,
) -> None:
    """Check that a sweep's best model can be registered, unless ``name`` is None, and saved into a new folder, unless
    that is None. The other arguments and the errors are those of ``check_registration`` and ``check_folder``."""
    if name is not None:
        check_registration(config, name, alias, merged=merged, is_trained=is_trained)
    if folder is not None:
        check_folder(folder)
    _check_merge(config, merged=merged)


def check_folder(folder: Path) -> None:
    """Check that a folder for a model is new or empty.

    Raises:
        ConfigError: The folder contains files, which would be lost, or is a file.
    """
    existing = folder.expanduser()
    if existing.exists() and not existing.is_dir():
        raise ConfigError(f"--save-model={folder}: is a file; choose a new folder")
    if existing.is_dir() and any(existing.iterdir()):
        raise ConfigError(
            f"--save-model={folder}: the folder is not empty; choose a new one, or remove its files first"
        )


def check_registration(
    config: SweepConfig, name: str, alias: str | None, *, merged: bool, is_trained: bool = False
) -> None:
    """Check that a sweep's best model can be registered.

    Args:
        config: The sweep's config.
        name: Name of the registered model.
        alias: Alias of the new version; None for none.
        merged: Merge LoRA adapters into their base.
        is_trained: Whether there is a checkpoint; its files then show what a user's own training has saved.

    Raises:
        UserError: MLflow would refuse the name or the alias, or the sweep's models cannot be registered or merged.
    """
    if name != name.strip() or not name or not name.isprintable() or re.search(FORBIDDEN, name):
        raise ConfigError(
            f"--register={name}: a model's name must not contain / : . % \" ' \\, spaces at its ends, or characters "
            "that cannot be printed; choose another"
        )
    reserved = alias is not None and (alias.lower() == "latest" or re.fullmatch(r"(?i)v\d+", alias))
    if alias is not None and (reserved or not re.fullmatch(r"[A-Za-z0-9_-]+", alias)):
        raise ConfigError(
            f"--alias={alias}: an alias has letters, digits, _ and -, and is neither 'latest' nor like 'v1'; "
            "choose another, such as champion"
        )
    if not is_trained and (reason := why_not_registered(config)) is not None:
        raise UserError(
            f"{reason}; use --no-register, then `best SWEEP --register NAME` if its checkpoints are folders of "
            "transformers with a tokenizer"
        )
    _check_merge(config, merged=merged)


def why_not_registered(config: SweepConfig) -> str | None:
    """Return the reason why a sweep's model cannot be registered after its training; None if it can."""
    task = config.task
    if not isinstance(task, UserTask) or (isinstance(task, FunctionTask) and task.framework == "huggingface"):
        return None
    who = task.target if isinstance(task, FunctionTask) else "the program"
    return (
        f"task.kind={task.kind}: only {who} knows how to load what it saves, so it is not registered after the training"
    )


def _check_merge(config: SweepConfig, *, merged: bool) -> None:
    """Check that a sweep's models have adapters, if these are to be merged."""
    if not merged or isinstance(config.task, UserTask):
        return  # the files of a user's own checkpoint show whether there are adapters
    if not (isinstance(config.model, CausalLM) and config.model.lora is not None):
        raise UserError("--merge: this model has no LoRA adapters that could be merged into their base; leave it out")
