"""Sweeps that tests stop, kill and let go on."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from running import SHORT, Done

from sweeps.tracking.reader import load_sweep

SPACE = ("space=none", "train.lr=tag(log, interval(1e-3, 1e-1))", "model.dropout=interval(0, 0.3)")
SEARCH = ("conf=digits", *SHORT, *SPACE, "search/scheduler=none")
ONE_AT_ONCE = ("cluster.num_cpus=2", "scaling.num_workers=2")


def wait_for(
    folder: Path, sweep: str, condition: Any, process: subprocess.Popen[str], *, within_s: float = 120
) -> None:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        try:
            if condition(load_sweep(f"sqlite:///{folder}/mlflow.db", sweep)):
                return
        except Exception:  # noqa: BLE001 - it is not there yet
            pass
        time.sleep(0.1)
    raise AssertionError("it did not come to that")


def journal(path: Path) -> JournalStorage:
    return JournalStorage(JournalFileBackend(str(path)))


def histories(done: Done) -> dict[str, list[tuple[int, float]]]:
    """Steps and values of every trial's evaluations, as MLflow has them."""
    return {run.data.tags["sweeps.trial"]: done.history(run.info.run_id, "eval/accuracy") for run in done.trials()}
