"""Command lines of the promotion of champions, run in child processes: they load torch and draw figures, which would
take too much memory in the service, and can be killed.

A child may outlive a service that dies. It holds a lock on its machine, so that the next service there does not start
the same command beside it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

from sweeps.errors import SweepsError
from sweeps.service.subprocesses import lock_file, spawn, without_client_variables

REGISTER_TIMEOUT_S = 3600.0
"""Maximum seconds to load a model and upload it."""
REPORT_TIMEOUT_S = 300.0
LOCKS = ".nights"
"""Folder of the locks, in the folder of the sweeps."""


class StillRunning(SweepsError):
    """The same command still runs for a service that has died."""


class CommandLines:
    """Runs command lines about the sweeps of one tracking store."""

    def __init__(self, uri: str, output_dir: Path):
        self._uri, self._locks = uri, output_dir / LOCKS

    def register(self, sweep: str, trial: str, model: str) -> str:
        """Register a trial's checkpoint as a version of a model without an alias, and return the version; raise
        ``SweepsError`` if that fails."""
        arguments = ["best", sweep, "--trial", trial, "--register", model, "--alias", "", "--json"]
        return str(json.loads(self._run(arguments, REGISTER_TIMEOUT_S))["model"]["version"])

    def report(self, sweep: str) -> None:
        """Make a sweep's report again; raise ``SweepsError`` if that fails."""
        self._run(["report", sweep], REPORT_TIMEOUT_S)

    def _run(self, arguments: list[str], timeout_s: float) -> str:
        command = f"`sweeps {' '.join(arguments)}`"
        self._locks.mkdir(parents=True, exist_ok=True)
        with lock_file(self._locks / f"{arguments[0]}-{arguments[1]}") as lock:
            if lock is None:
                raise StillRunning(f"{command} still runs for a service that has died")
            process = spawn(
                "sweeps",
                arguments,
                lock,
                env={**without_client_variables(os.environ), "MLFLOW_TRACKING_URI": self._uri},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        with process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise SweepsError(f"{command} did not finish within {timeout_s:.0f} s") from None
        if process.returncode != 0:
            raise SweepsError(f"{command}: {err.strip()[-1000:]}")
        return str(out)
