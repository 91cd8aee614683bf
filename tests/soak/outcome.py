"""Checks of what a soak has left, by the database, MLflow's file and the folders, not through the service."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

from clients import Seen
from light_driver import STEPS, TRAINED, TRIALS
from sqlalchemy import create_engine, text


def check_sweeps(url: str, store: Path, outputs: Path, seen: Seen) -> list[str]:
    """Return what was lost or done twice."""
    engine = create_engine(url)
    with engine.connect() as connection:
        jobs = list(connection.execute(text("SELECT id, sweep, state, error, makes FROM jobs")))
    engine.dispose()
    wrong = [f"{name}: {number} jobs" for name, number in Counter(job.sweep for job in jobs).items() if number > 1]
    by_number = {job.id: job for job in jobs}
    for name, number in seen.accepted.items():
        job = by_number.get(number)
        if job is None or job.sweep != name:
            wrong.append(f"{name}: accepted as job {number}, and lost")
        elif job.state != "finished" and not (job.state in ("cancelled", "stopped") and name in seen.ended_by_us):
            wrong.append(f"{name}: {job.state} ({job.error})")
    with closing(sqlite3.connect(store)) as database:
        for job in jobs:
            if job.state == "finished":
                wrong += [f"{job.sweep}: {each}" for each in _mistakes(database, outputs / job.sweep, job.sweep)]
    return wrong


def _mistakes(database: sqlite3.Connection, folder: Path, sweep: str) -> list[str]:
    trials = (
        "SELECT r.run_uuid, k.value, r.status FROM runs r JOIN tags s ON s.run_uuid = r.run_uuid AND s.key = "
        "'sweeps.sweep' JOIN tags k ON k.run_uuid = r.run_uuid AND k.key = 'sweeps.trial' WHERE s.value = ?"
    )
    runs = list(database.execute(trials, (sweep,)))
    wrong = []
    if sorted(trial for _, trial, _ in runs) != [f"{number:04}" for number in range(TRIALS)]:
        wrong.append(f"its trials in MLflow are {sorted(trial for _, trial, _ in runs)}")
    for run, trial, status in runs:
        points = "SELECT key, step FROM metrics WHERE run_uuid = ? AND key LIKE 'eval/%'"
        found = Counter(database.execute(points, (run,)))
        if status != "FINISHED" or {step for _, step in found} != set(range(1, STEPS + 1)):
            wrong.append(f"trial {trial} is {status} with the steps {sorted({step for _, step in found})}")
        wrong += [
            f"trial {trial} has {key} at step {step} {number} times"
            for (key, step), number in found.items()
            if number > 1
        ]
    lines = [json.loads(line) for line in (folder / TRAINED).read_text().splitlines()]
    drivers = list(dict.fromkeys(line["pid"] for line in lines))
    order = [line["pid"] for line in sorted(lines, key=lambda line: line["at"])]
    if order != sorted(order, key=drivers.index):
        wrong.append(f"its drivers {drivers} trained at the same time")
    return wrong
