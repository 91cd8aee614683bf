"""MLflow runs that a user's function starts: stored in the trial's folder, with their metrics added to the trial's.

Otherwise the runs would appear in another experiment than the sweep's, without a link to the trial, and those of
stopped trials would never end. A function that calls ``mlflow.set_tracking_uri`` logs to that store.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sweeps_train.command.output import Record
from sweeps_train.command.sources import MLFLOW_FOLDER, OF_ANOTHER_STORE, STEP, MlflowStore, store_environment


class OwnRuns:
    """The MLflow runs that one worker's function starts."""

    def __init__(self, folder: Path, rank: int) -> None:
        """Keep runs in the trial's folder. Only those of rank 0 are read, like its reports."""
        self._folder = folder / (MLFLOW_FOLDER if rank == 0 else f"{MLFLOW_FOLDER}-{rank}")
        self._store = MlflowStore(self._folder)

    def new(self, step: int, reported: Collection[str]) -> list[tuple[int, Record]]:
        """Return the values logged since the last call, by step; values without a step belong to the current one.
        Metrics that the function itself has ``reported`` are left out."""
        records = []
        for record in self._store.read(at_end=True):
            values = {name: value for name, value in record.items() if name != STEP and name not in reported}
            if values:
                records.append((int(record[STEP]) or step, values))
        return records

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Store the runs of a ``with`` block in the trial's folder, and end a run that is left open."""
        server = os.environ.get("MLFLOW_TRACKING_URI")
        os.environ.update(store_environment(self._folder))  # restored with all other variables
        if server is not None:
            os.environ.setdefault("MLFLOW_REGISTRY_URI", server)  # registered models are loaded from there as before
        for name in OF_ANOTHER_STORE:
            os.environ.pop(name, None)
        with ended_runs():
            try:
                yield
            finally:
                mlflow: Any = sys.modules.get("mlflow")
                with contextlib.suppress(Exception):
                    if mlflow is not None and mlflow.get_tracking_uri() == os.environ.get("MLFLOW_TRACKING_URI"):
                        mlflow.set_experiment(experiment_id="0")  # else the next trial would look for this trial's


@contextmanager
def ended_runs() -> Iterator[None]:
    """End the MLflow runs that a ``with`` block has left open in this thread."""
    try:
        yield
    finally:
        # A trial that was asked to stop raises no `Exception`, and has not failed.
        status = "FAILED" if isinstance(sys.exception(), Exception) else "FINISHED"
        mlflow: Any = sys.modules.get("mlflow")
        with contextlib.suppress(Exception):  # a trial must not fail because the user's server does not answer
            while mlflow is not None and mlflow.active_run() is not None:
                mlflow.end_run(status)
