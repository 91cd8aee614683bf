"""Handles runs that user code starts in a trial: MLflow runs are named after the trial and end with it; a W&B run ends
before the next trial of the process.

Otherwise MLflow would draw the same random names in every trial, because each trial seeds Python's generator alike, and
runs would stay open, because the process continues with the next trial, whose ``wandb.init`` would return the one of
the trial before.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from sweeps_train.frameworks.mlflow_runs import ended_runs

RUN_TAGS = "MLFLOW_RUN_CONTEXT"
"""Environment variable of MLflow: tags, as JSON, for all runs that are started."""


@contextlib.contextmanager
def users_runs_ended(trial_name: str) -> Iterator[None]:
    """Name unnamed MLflow runs of the block after the trial, and end those that this thread leaves open. A W&B run that
    an earlier trial has left open is ended first.

    Args:
        trial_name: Name of the sweep and number of the trial.
    """
    _end_wandb_run()
    before = os.environ.get(RUN_TAGS)
    tags = {"mlflow.runName": trial_name}
    with contextlib.suppress(ValueError, TypeError):  # MLflow ignores what is no JSON object
        tags = tags | json.loads(before or "{}")  # |= would also take a list of pairs
    os.environ[RUN_TAGS] = json.dumps(tags)
    try:
        with ended_runs():
            yield
    finally:
        if before is None:
            del os.environ[RUN_TAGS]
        else:
            os.environ[RUN_TAGS] = before


def _end_wandb_run() -> None:
    """End the W&B run of an earlier trial, which has not failed, since its process continues. At that trial's end, one
    that has trained would wait for W&B's server; without a next trial, W&B ends the run with the process."""
    wandb: Any = sys.modules.get("wandb")
    with contextlib.suppress(Exception):
        if wandb is not None and wandb.run is not None:
            wandb.finish()
