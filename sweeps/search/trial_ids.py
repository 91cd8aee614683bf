"""Ids of the trials of a search, used by people, folders and MLflow."""

from __future__ import annotations


def trial_id(number: int, stage: int | None = None) -> str:
    """Return the id of a trial: ``0003``, or in the first stage of a search ``s1-0003``.

    Args:
        number: Number of the trial within its search, from 0.
        stage: Number of the stage; None: the search after its stages.
    """
    return f"{number:04}" if stage is None else f"s{stage}-{number:04}"


def trial_stage(trial: str) -> int | None:
    """Return the number of a trial's stage, from its id; None for the search after its stages."""
    stage, _, _ = trial.rpartition("-")
    return int(stage.removeprefix("s")) if stage else None


def trial_number(trial: str) -> int:
    """Return the number of a trial within its search, from its id."""
    return int(trial.rpartition("-")[2])
