"""What a judged night puts into MLflow, by commands of their own: they load torch and draw figures, which the service
has no room for, and they can be ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from sweeps.errors import SweepsError

REGISTERED_WITHIN_S = 600.0
REPORTED_WITHIN_S = 300.0


def register(uri: str, sweep: str, trial: str, model: str, alias: str) -> str:
    """Make a trial's checkpoint a version of a model, and give it the alias; the version.

    Raises:
        SweepsError: It cannot be registered.
    """
    arguments = ["best", sweep, "--trial", trial, "--register", model, "--alias", alias, "--json"]
    return str(json.loads(_command(uri, arguments, REGISTERED_WITHIN_S))["model"]["version"])


def report(uri: str, sweep: str) -> None:
    """Make a sweep's report anew.

    Raises:
        SweepsError: It cannot be made.
    """
    _command(uri, ["report", sweep], REPORTED_WITHIN_S)


def _command(uri: str, arguments: list[str], within_s: float) -> str:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "sweeps", *arguments],
            env={**os.environ, "MLFLOW_TRACKING_URI": uri},
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
            start_new_session=True,  # Ctrl-C in a terminal is not for it
        )
    except subprocess.TimeoutExpired:
        raise SweepsError(f"`sweeps {' '.join(arguments)}` was not done within {within_s:.0f} s") from None
    if done.returncode != 0:
        raise SweepsError(f"`sweeps {' '.join(arguments)}`: {done.stderr.strip()[-1000:]}")
    return done.stdout
