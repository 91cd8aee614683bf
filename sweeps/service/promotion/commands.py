"""What a judged night puts into MLflow, by command lines in processes of their own: they load torch and draw figures,
which the service has no room for, and they can be ended.

They may outlive a service that dies. Each holds a lock while it runs, on the machine that it runs on, so that the next
service there does not begin the same beside it.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from sweeps.errors import SweepsError

REGISTERED_WITHIN_S = 600.0
REPORTED_WITHIN_S = 300.0
LOCKS = ".nights"
"""Folder of the locks, beside the sweeps'."""


class Commands:
    """Command lines about sweeps in one store."""

    def __init__(self, uri: str, output_dir: Path):
        """
        Args:
            uri: Where sweeps are recorded.
            output_dir: Of the sweeps.
        """
        self._uri, self._locks = uri, output_dir / LOCKS

    def register(self, sweep: str, trial: str, model: str, alias: str) -> str:
        """Make a trial's checkpoint a version of a model, and give it the alias; the version.

        Raises:
            SweepsError: It cannot be registered.
        """
        arguments = ["best", sweep, "--trial", trial, "--register", model, "--alias", alias, "--json"]
        return str(json.loads(self._run(arguments, REGISTERED_WITHIN_S))["model"]["version"])

    def report(self, sweep: str) -> None:
        """Make a sweep's report anew.

        Raises:
            SweepsError: It cannot be made.
        """
        self._run(["report", sweep], REPORTED_WITHIN_S)

    def _run(self, arguments: list[str], within_s: float) -> str:
        command = f"`sweeps {' '.join(arguments)}`"
        self._locks.mkdir(parents=True, exist_ok=True)
        with (self._locks / f"{arguments[0]}-{arguments[1]}").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SweepsError(f"{command} is still being done for a service that has died") from None
            process = subprocess.Popen(
                [sys.executable, "-m", "sweeps", *arguments],
                env={**os.environ, "MLFLOW_TRACKING_URI": self._uri},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                pass_fds=[lock.fileno()],
                start_new_session=True,  # Ctrl-C in a terminal is not for it
            )
        with process:
            try:
                out, err = process.communicate(timeout=within_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise SweepsError(f"{command} was not done within {within_s:.0f} s") from None
        if process.returncode != 0:
            raise SweepsError(f"{command}: {err.strip()[-1000:]}")
        return out
