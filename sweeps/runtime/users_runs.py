"""Handling of MLflow runs that a user's own code starts in a trial: they are named after the trial and ended with it.

Otherwise MLflow would draw the same random names in every trial, because each trial seeds Python's generator alike, and
would leave the runs open, because the process continues with the next trial.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator

from sweeps_train.frameworks.mlflow_runs import ended_runs

RUN_TAGS = "MLFLOW_RUN_CONTEXT"
"""Environment variable of MLflow: tags, as JSON, for all runs that are started."""


@contextlib.contextmanager
def users_runs_ended(trial_name: str) -> Iterator[None]:
    """Name unnamed MLflow runs of the block after the trial, and end those that this thread leaves open.

    Args:
        trial_name: Name of the sweep and number of the trial.
    """
    before = os.environ.get(RUN_TAGS)
    os.environ[RUN_TAGS] = json.dumps({"mlflow.runName": trial_name} | json.loads(before or "{}"))
    try:
        with ended_runs():
            yield
    finally:
        if before is None:
            del os.environ[RUN_TAGS]
        else:
            os.environ[RUN_TAGS] = before
