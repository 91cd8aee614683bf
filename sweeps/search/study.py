"""The file of a study: opened by its one writer, mended where a dead one left it torn, and filled up again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from sweeps.constants import NUMBER, REASON
from sweeps.objectives import Objectives, Values
from sweeps.search.progress import Progress
from sweeps.space import Lookup, Space

STUDY_FILE = "optuna.log"
"""In the sweep's folder: Optuna's journal."""
DAMAGED = ".damaged"


def open_journal(path: Path) -> tuple[JournalStorage, str | None]:
    """The storage in a file, and what was wrong with it. Its caller is the only writer.

    Optuna writes each change as one line, puts it on the disk, and only then acts on it: half a line at the end is a
    change that nobody has relied on. After a line in the middle that cannot be read nothing is certain, since later
    ones count on it; what is cut off is kept beside the file.
    """
    path.with_name(path.name + ".lock").unlink(missing_ok=True)  # of a dead writer: Optuna would wait 30 s for it
    wrong = None
    if path.exists():
        size, whole = path.stat().st_size, _whole(path)
        if whole < size:
            shutil.copy2(path, path.with_name(path.name + DAMAGED))
            with path.open("r+b") as file:
                file.truncate(whole)
                os.fsync(file.fileno())
            wrong = f"{path.name} could be read up to byte {whole:,} of {size:,}, and goes on from there"
    return JournalStorage(JournalFileBackend(str(path))), wrong


def _whole(path: Path) -> int:
    """Bytes of the leading lines that are what Optuna writes."""
    whole = 0
    with path.open("rb") as lines:
        for line in lines:
            try:
                readable = line.endswith(b"\n") and isinstance(json.loads(line), dict)
            except ValueError:
                readable = False
            if not readable:
                break
            whole += len(line)
    return whole


def trial_as_told(
    space: Space,
    lookup: Lookup,
    objectives: Objectives,
    *,
    number: int,
    point: Mapping[str, Any],
    results: Iterable[Mapping[str, Any]],
    state: TrialState,
    values: Values | None = None,
    reason: str | None = None,
) -> FrozenTrial:
    """A trial as the searcher would have told a study of it, for a study that has lost it.

    Args:
        space: What is searched.
        lookup: The config's own values.
        objectives: What is read of its results.
        number: Of the trial within its sweep.
        point: Its parameters.
        results: What it reported, in order.
        state: How it ended, or ``RUNNING``.
        values: Of a finished trial, where its results are lost, too.
        reason: Why it failed.
    """
    told = optuna.create_study(directions=["minimize" if mode == "min" else "maximize" for mode in objectives.modes])
    told.enqueue_trial(space.encode(point))
    trial = told.ask()
    space.sample(trial, lookup)
    trial.set_user_attr(NUMBER, number)
    progress = Progress(trial, objectives)
    for result in results:
        progress.add(result)
    if reason is not None:
        trial.set_user_attr(REASON, reason)
    elif state != TrialState.RUNNING:
        progress.set_constraints()
    if state != TrialState.RUNNING:
        told.tell(trial, (progress.values or values) if state == TrialState.COMPLETE else None, state)
    return told.get_trials()[0]
