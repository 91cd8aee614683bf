"""Arms (b) and (c): the command line.

python -m overhead.ours trivial warm 20 FOLDER RECORD.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from overhead.probe import STALLS
from overhead.workload import METRIC, ONE_TRIAL_AT_A_TIME, WORKLOADS, ArmRecord, Training, TrialTimes


def main() -> None:
    workload, isolation, trials, folder, record = sys.argv[1:]
    working_folder = Path(folder)
    stalls = working_folder / "stalls.txt"
    tokens = [*WORKLOADS[workload], *ONE_TRIAL_AT_A_TIME, f"search.num_trials={trials}"]
    done = subprocess.run(
        [sys.executable, "-m", "sweeps", "run", *tokens, f"scaling.isolation={isolation}", "--json"],
        cwd=working_folder,
        env={**os.environ, STALLS: str(stalls)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    sweep = json.loads(done.stdout)
    assert len(sweep["trials"]) == int(trials), sweep["counts"]
    assert sweep["counts"]["failed"] == 0, sweep["counts"]
    ArmRecord(
        trials=_times(sweep, working_folder),
        train_s=sweep["time"]["train_s"],
        stalls=[float(line) for line in stalls.read_text(encoding="utf-8").split()] if stalls.exists() else [],
        trainings=[_training(working_folder / "outputs" / sweep["sweep"], trial) for trial in sweep["trials"]],
    ).write(Path(record))


def _times(sweep: dict[str, Any], folder: Path) -> list[TrialTimes]:
    """Times of all reports from MLflow, which has those at which workers measured."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    times = []
    for trial in sweep["trials"]:
        history = client.get_metric_history(trial["run_id"], METRIC)
        times.append(TrialTimes(trial["trial"], sorted(each.timestamp / 1000 for each in history), trial["steps"]))
    return sorted(times, key=lambda trial: trial.reports[-1])


def _training(folder: Path, trial: dict[str, Any]) -> Training:
    """Training of a trial, from one of its checkpoints."""
    file = next((folder / "trials" / trial["trial"]).glob("step-*/training.json"))
    return Training(trial["trial"], json.loads(file.read_text(encoding="utf-8")), trial["steps"])


if __name__ == "__main__":
    main()
