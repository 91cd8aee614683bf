"""Runs sweeps through the command line, for the tests that need whole ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock
from mlflow import MlflowClient
from processes import outputs
from stores import make_store


@dataclass(frozen=True)
class Done:
    """A finished sweep: its folder, what it printed, and its JSON document."""

    folder: Path
    status: int
    err: str
    document: dict[str, Any]

    @classmethod
    def of(cls, folder: Path, sweep: str) -> Done:
        """A sweep in a folder, as `show` has it."""
        command = [sys.executable, "-m", "sweeps", "show", sweep, "--json"]
        shown = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        return cls(folder, 0, "", json.loads(shown.stdout))

    @property
    def store(self) -> str:
        return f"sqlite:///{self.folder}/mlflow.db"

    @property
    def client(self) -> MlflowClient:
        return MlflowClient(self.store)

    def trials(self) -> list[Any]:
        """MLflow's nested runs, in order of their trial."""
        ids = self.document["mlflow"]
        runs = self.client.search_runs([ids["experiment_id"]], f"tags.`mlflow.parentRunId` = '{ids['run_id']}'")
        return sorted(runs, key=lambda run: run.data.tags["sweeps.trial"])

    def trial(self, number: int | str) -> Any:
        """MLflow's run of a trial, by its number or id."""
        return next(run for run in self.trials() if int(run.data.tags["sweeps.trial"]) == int(number))

    def history(self, run_id: str, metric: str) -> list[tuple[int, float]]:
        """Steps and values of a run's metric."""
        return sorted((point.step, point.value) for point in self.client.get_metric_history(run_id, metric))

    def parent(self) -> Any:
        return self.client.get_run(self.document["mlflow"]["run_id"])


def own_function(folder: Path, code: str, arguments: str) -> tuple[str, ...]:
    """Write a user's own function ``train`` and its config, with the function's arguments in YAML and nothing searched
    yet; returns the tokens that name it."""
    (folder / "users.py").write_text(code, encoding="utf-8")
    task = f"task: {{_target_: users.train, arguments: {arguments}, metrics: []}}"
    search = "search: {metric: loss, mode: min, default_first: false}"
    conf = ("# A function of this test.", "defaults: [ray_train_function, _self_]", "space: null", task, search)
    (folder / "users.yaml").write_text("\n".join(conf), encoding="utf-8")
    return ("conf=users", f"--config-dir={folder}")


def own_network(folder: Path, code: str) -> tuple[str, ...]:
    """Write a user's own model ``Net`` of the digits; returns the tokens by which a sweep trains it, with nothing
    searched yet."""
    (folder / "nets.py").write_text(code, encoding="utf-8")
    return ("conf=digits", "space=none", "model=custom", "model._target_=nets.Net")


def start(folder: Path, *arguments: str, new_store: bool = False) -> subprocess.Popen[str]:
    """Start a verb. With ``new_store`` a sweep makes its store itself, as a user's first one does."""
    if arguments[0] == "run" and not new_store:
        make_store(folder / "mlflow.db")
    return subprocess.Popen(
        [sys.executable, "-m", "sweeps", *arguments],
        cwd=folder,
        env={**os.environ, "SWEEPS_CACHE": str(folder / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def verb(folder: Path, *arguments: str, status: int = 0, within_s: float = 280) -> Done:
    """Run a verb in a folder of sweeps, and check its exit status; the document is empty if it prints none."""
    return ended(folder, start(folder, *arguments), status=status, within_s=within_s)


def ended(folder: Path, process: subprocess.Popen[str], *, status: int = 0, within_s: float = 280) -> Done:
    """Wait for a verb that was started, and check its exit status; the document is empty if it prints none."""
    out, err = outputs(process, within_s)
    assert process.returncode == status, err
    return Done(folder, status, err, json.loads(out) if out.startswith("{") else {})


def run(folder: Path, *arguments: str, report: bool = False, new_store: bool = False, within_s: float = 280) -> Done:
    """Run a sweep to its end; with ``report`` it takes some seconds longer."""
    process = start(folder, "run", *arguments, f"tracking.report={str(report).lower()}", "--json", new_store=new_store)
    out, err = outputs(process, within_s)
    assert process.returncode in (0, 1), err
    assert out, err
    return Done(folder, process.returncode, err, json.loads(out))


def run_once(folder: Path, *arguments: str, **options: Any) -> Done:
    """A sweep in a folder that several test processes share: the first one that asks runs it, and others wait."""
    folder.mkdir(exist_ok=True)
    kept = folder / "done.json"
    with FileLock(folder / "lock"):
        if not kept.exists():
            done = run(folder, *arguments, **options)
            kept.write_text(json.dumps([done.status, done.err, done.document]), encoding="utf-8")
    return Done(folder, *json.loads(kept.read_text(encoding="utf-8")))


def points(*values: dict[str, Any]) -> str:
    """The override by which a sweep tries these points first."""
    text = ", ".join("{" + ", ".join(f"{path}: {value}" for path, value in point.items()) + "}" for point in values)
    return f"search.points=[{text}]"


NO_PREFLIGHT = "preflight.timeout_s=0"
"""Leaves out the process that builds each model before the trials, where it is not the point."""
SHORT = ("train.max_steps=40", "train.eval_every=10", "train.log_every=5")
