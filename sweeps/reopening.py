"""A sweep that goes on after its end: what its folder keeps for that, and what ``extend`` may change."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from sweeps.checks.config import check_sweep
from sweeps.compose import Composition
from sweeps.compose.overrides import parse_values
from sweeps.config.search import Search, Stop
from sweeps.constants import TAG_FOLDER
from sweeps.errors import ConfigError, UserError, nearest
from sweeps.plan import Plan, all_scalings
from sweeps.tracking.record import SweepRecord

STOP = TypeAdapter(Stop)
SWEEP_FILE = "sweep.json"
"""In the sweep's folder: the whole composition, so that later changes of ``conf/`` do not change the sweep."""
EXTENDABLE = {
    "search.num_trials",
    "search.max_concurrent",
    "search.max_retries",
    "search.stop.wall_hours",
    "search.stop.gpu_hours",
    "search.stop.cost",
    "search.stop.cost.limit",
    "search.stop.cost.per_gpu_hour",
    "search.stop.cost.per_cpu_hour",
    "search.stop.target",
    "search.stop.plateau",
    "search.stop.plateau.trials",
    "search.stop.plateau.min_change",
    "search.stop.expected_improvement",
}


def save(plan: Plan) -> None:
    """Write what ``reopened`` reads; whole, or not at all."""
    document = {"name": plan.name, "command": plan.command, "composition": plan.composition.as_json()}
    unfinished = plan.folder / f"{SWEEP_FILE}.unfinished"
    with unfinished.open("w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(plan.folder / SWEEP_FILE)


def read_changes(tokens: Sequence[str]) -> dict[str, Any]:
    """What ``extend`` is asked to change: values by dotted path.

    Raises:
        ConfigError: A token is no ``key=value``, or names what cannot be changed.
    """
    changes = parse_values(tokens)
    for key, value in changes.items():
        if key not in EXTENDABLE:
            raise ConfigError(
                f"{key}={value}: extend changes how long a sweep goes on, which is {_shown(EXTENDABLE)}"
                f"{nearest(key, EXTENDABLE)}; for anything else run a new sweep, with search.warm_start"
            )
    return changes


def reopened(record: SweepRecord, changes: Mapping[str, Any]) -> Plan:
    """The plan of an earlier sweep, to go on with.

    Args:
        record: The sweep.
        changes: Values by dotted path.

    Raises:
        UserError: Its folder is not here, or the changes make no valid sweep.
    """
    folder = Path(record.tags.get(TAG_FOLDER, ""))
    file = folder / SWEEP_FILE
    if not folder.is_absolute() or not file.is_file():
        raise UserError(
            f"{record.sweep}: its folder {folder} is not on this machine, or not whole (it lacks {SWEEP_FILE}); "
            "go on where it was started, or with its output_dir on storage that both machines share"
        )
    document = json.loads(file.read_text(encoding="utf-8"))
    # The URI that was written down has no password, and a server may have moved.
    before = Composition.from_json(document["composition"]).recorded_at(record.mlflow.tracking_uri)
    composition = before.changed(changes)
    if composition.config.search.num_trials < before.config.search.num_trials:
        raise ConfigError(
            f"search.num_trials={composition.config.search.num_trials}: {record.sweep} has "
            f"{before.config.search.num_trials} already; extend takes a larger number"
        )
    space = check_sweep(composition)
    return Plan(
        name=record.sweep,
        composition=composition,
        space=space,
        scalings=all_scalings(composition, space),
        command=document["command"],
        folder=folder,
    )


def describe_search(search: Search) -> str:
    """How far a search goes, in one line."""
    stop = STOP.dump_python(search.stop, exclude_none=True, exclude_defaults=True)
    rules = "".join(f", {name}={value}" for name, value in stop.items())
    return f"up to {search.num_trials} trials{rules}"


def _shown(keys: set[str]) -> str:
    plain = sorted(key for key in keys if not key.startswith("search.stop."))
    return ", ".join([*plain, "search.stop.*"])
