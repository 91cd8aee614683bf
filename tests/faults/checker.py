"""An independent check of a sweep that faults were injected into: MLflow, the study, the folder and what `show` reports
are compared with each other, by code that shares nothing with the product's own readers of them."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from sqlalchemy import NullPool, create_engine, text

METRIC = "eval/accuracy"
CHECKSUM_LENGTH = len(',"crc":"00000000"}')
Points = dict[int, list[float]]
"""Values by step; one that was recorded twice has two."""


@dataclass
class Verdict:
    """Mistakes of a sweep, in words, by kind."""

    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.lost or self.twice or self.wrong or self.stuck)

    def lines(self) -> Iterator[str]:
        for kind, texts in vars(self).items():
            yield from (f"{kind}: {each}" for each in texts)


@dataclass
class Recorded:
    """A trial in MLflow's database."""

    run_id: str
    status: str
    tags: dict[str, str]
    parameters: dict[str, str]
    points: Points


@dataclass
class Measured:
    """Values of a trial in its report logs."""

    points: Points
    damaged: int = 0
    """Number of lines that are damaged: one value each may be missing."""
    lineages: int = 0
    """How often it has taken over another trial's state."""


def check(folder: Path, sweep: str, database: str, uri: str, *, trials: int, steps: list[int]) -> Verdict:
    """Check a sweep that has ended: it must have this number of trials, which report at these steps if they finish."""
    verdict = Verdict()
    document = _shown(folder, sweep, uri)
    shown = {trial["trial"]: trial for trial in document["trials"]}
    recorded = _in_mlflow(database, sweep, verdict)
    studied = _in_study(folder / "outputs" / sweep / "optuna.log", sweep)
    names = [f"{number:04}" for number in range(trials)]
    for source, found in (("show", shown), ("MLflow", recorded), ("the study", studied)):
        verdict.lost += [f"trial {name} is not in {source}" for name in names if name not in found]
        verdict.wrong += [f"{source} has a trial {name}" for name in found if name not in names]
    for name in names:
        if name in shown and name in recorded and name in studied:
            measured = _measured(folder / "outputs" / sweep / "trials" / name)
            _check_trial(name, verdict, shown[name], recorded[name], studied[name], measured, steps)
    _check_whole(document, recorded, verdict)
    return verdict


def _check_trial(
    name: str,
    verdict: Verdict,
    shown: dict[str, Any],
    recorded: Recorded,
    studied: optuna.trial.FrozenTrial,
    measured: Measured,
    steps: list[int],
) -> None:
    if shown["state"] not in ("finished", "pruned"):
        verdict.lost.append(f"trial {name} is {shown['state']}")
        return
    in_study = {"COMPLETE": "finished", "PRUNED": "pruned"}.get(studied.state.name, studied.state.name)
    states = shown["state"], recorded.tags["sweeps.state"], in_study
    if len(set(states)) > 1 or recorded.status != "FINISHED":
        verdict.wrong.append(f"trial {name}: its state is {states} in show, MLflow and the study; {recorded.status}")
    has_gone_back = measured.lineages > 0
    for path, value in shown["params"].items():
        found = float(recorded.parameters.get(path, "nan")), studied.params.get(path)
        if value != found[0] or (value != found[1] and not has_gone_back):
            verdict.wrong.append(f"trial {name}: {path} is {value} in show, {found} in MLflow and the study")
    _check_points(name, verdict, recorded.points, measured, is_finished=shown["state"] == "finished")
    # One that has taken over a later state has not measured what lies before that.
    own = [step for step in steps if step in measured.points] if has_gone_back else steps
    if shown["state"] == "finished" and (missing := [step for step in own if step not in recorded.points]):
        verdict.lost.append(f"trial {name}: steps {missing} are not in MLflow")
    for step, value in studied.intermediate_values.items():
        if step in recorded.points and value not in recorded.points[step]:
            verdict.wrong.append(f"trial {name}, step {step}: {value} in the study, {recorded.points[step]} in MLflow")
    best = max((value for each in recorded.points.values() for value in each), default=None)
    if shown["value"] != best:
        verdict.wrong.append(f"trial {name}: its value is {shown['value']}, the best in MLflow {best}")
    if shown["state"] == "finished" and shown["value"] != studied.value:
        verdict.wrong.append(f"trial {name}: its value is {shown['value']}, in the study {studied.value}")


def _check_points(name: str, verdict: Verdict, recorded: Points, measured: Measured, *, is_finished: bool) -> None:
    """Compare what MLflow has with what the workers measured; those of a pruned trial may have measured more."""
    damaged = measured.damaged
    for step in sorted(recorded.keys() | measured.points.keys()):
        in_mlflow, in_folder = sorted(recorded.get(step, [])), sorted(measured.points.get(step, []))
        said = f"trial {name}, step {step}: MLflow has {in_mlflow}, the workers measured {in_folder}"
        more, less = Counter(in_mlflow) - Counter(in_folder), Counter(in_folder) - Counter(in_mlflow)
        if any(value in in_folder or number > 1 for value, number in more.items()):
            verdict.twice.append(said)
        elif more.total() > damaged:
            verdict.wrong.append(said)
        else:
            damaged -= more.total()
        if less and (is_finished or step <= max(recorded, default=0)):
            verdict.lost.append(said)


def _check_whole(document: dict[str, Any], recorded: dict[str, Recorded], verdict: Verdict) -> None:
    counts = Counter(trial["state"] for trial in document["trials"])
    if {state: number for state, number in document["counts"].items() if number} != counts:
        verdict.wrong.append(f"counts are {document['counts']}, the trials {dict(counts)}")
    highest = max(
        (value for each in recorded.values() for values in each.points.values() for value in values), default=None
    )
    best = document["best"]
    if best is None or best["value"] != highest:
        verdict.wrong.append(f"the best is {best and best['value']}, and MLflow has {highest}")


def _shown(folder: Path, sweep: str, uri: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "sweeps", "show", sweep, "--json", f"--tracking-uri={uri}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _in_mlflow(database: str, sweep: str, verdict: Verdict) -> dict[str, Recorded]:
    """The trials' runs, read with SQL."""
    found: dict[str, Recorded] = {}
    with create_engine(database, poolclass=NullPool).connect() as rows:
        tags: dict[str, dict[str, str]] = {}
        for run, key, value in rows.execute(text("SELECT run_uuid, key, value FROM tags")):
            tags.setdefault(run, {})[key] = value
        active = text("SELECT run_uuid, status FROM runs WHERE lifecycle_stage = 'active'")
        for run, status in rows.execute(active).all():
            of_run = tags.get(run, {})
            if of_run.get("sweeps.sweep") != sweep or of_run.get("sweeps.kind") != "trial":
                continue
            trial = of_run["sweeps.trial"]
            if trial in found:
                verdict.twice.append(f"trial {trial} has two runs in MLflow")
            points: Points = {}
            query = text("SELECT step, value FROM metrics WHERE run_uuid = :run AND key = :key")
            for step, value in rows.execute(query, {"run": run, "key": METRIC}):
                points.setdefault(step, []).append(value)
            query = text("SELECT key, value FROM params WHERE run_uuid = :run")
            parameters = {row.key: row.value for row in rows.execute(query, {"run": run})}
            found[trial] = Recorded(run, status, of_run, parameters, points)
    return found


def _in_study(file: Path, sweep: str) -> dict[str, optuna.trial.FrozenTrial]:
    study = optuna.load_study(study_name=sweep, storage=JournalStorage(JournalFileBackend(str(file))))
    return {
        f"{trial.user_attrs['sweeps:trial']:04}": trial
        for trial in study.get_trials()
        if "sweeps:trial" in trial.user_attrs
    }


def _measured(folder: Path) -> Measured:
    """Values that a trial's workers have written down themselves: those that were first at a step of each lineage."""
    found = Measured({})
    for place in [folder, *folder.glob("lineage-*")]:
        first: dict[int, float] = {}
        file = place / "reports.jsonl"
        for line in file.read_bytes().split(b"\n") if file.is_file() else ():
            if not line.endswith(b',"crc":"%08x"}' % zlib.crc32(line[:-CHECKSUM_LENGTH])):
                found.damaged += bool(line)
                continue
            event = json.loads(line)
            if event["kind"] == "Report" and METRIC in event["metrics"]:
                first.setdefault(event["step"], event["metrics"][METRIC])
        if place != folder:
            found.lineages += 1
        for step, value in first.items():
            found.points.setdefault(step, []).append(value)
    return found
