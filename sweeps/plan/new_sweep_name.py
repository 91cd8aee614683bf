"""The name of a new sweep: given by the user, or the name of its config or of the repeated sweep, with the time."""

from __future__ import annotations

import os
import time

from sweeps.config.sweep_name import MAX_NAME_BYTES, MAX_NAME_LENGTH, NAME_LETTERS, is_sweep_name, with_ending
from sweeps.errors import ConfigError
from sweeps.tracking.record import SweepRecord, TrialRecord


def default_name(config: str) -> str:
    """Return a name for a sweep of a config: ``digits-20261120-021500``."""
    return with_ending(config, _at_this_time())


def repeat_name(record: SweepRecord, trial: TrialRecord | None, what: str) -> str:
    """Return a name for a sweep that repeats another one or its trial: ``digits-1-0003-retrain-20261120-021500``."""
    which = "" if trial is None else f"-{trial.trial}"
    return with_ending(record.sweep, f"{which}-{what}{_at_this_time()}")


def checked_name(name: str) -> str:
    """Return the name that a user gives.

    Raises:
        ConfigError: The name has characters that a folder or a page cannot have, or is too long.
    """
    if not is_sweep_name(name):
        raise ConfigError(
            f"--name={name}: must have only {NAME_LETTERS}, at most {MAX_NAME_LENGTH} ({MAX_NAME_BYTES} bytes); "
            "without --name the sweep is named after its config and the time"
        )
    return name


def _at_this_time() -> str:
    """Return the time, and in a task of a Slurm array its number, since all tasks start in the same second."""
    task = os.environ.get("SLURM_ARRAY_TASK_ID", "")
    return f"-{time.strftime('%Y%m%d-%H%M%S')}" + (f"-{task}" if task.isdecimal() else "")
