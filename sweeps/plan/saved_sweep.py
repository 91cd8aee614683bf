"""A sweep that goes on after its end, and what its folder keeps for that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweeps.compose import Composition
from sweeps.constants import TAG_FOLDER
from sweeps.errors import UserError
from sweeps.files import write_json
from sweeps.folder import has_died
from sweeps.plan.extend import extended
from sweeps.plan.plan import Plan, all_scalings
from sweeps.search.study_version import check_study
from sweeps.tracking.journal import check_journal
from sweeps.tracking.reader import HEARTBEAT_TIMEOUT_S
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.uris import absolute
from sweeps.validate.config import check_sweep
from sweeps.versions import Document, Format

SWEEP_FILE = "sweep.json"
"""In the sweep's folder: the whole composition, so that later changes of ``conf/`` do not change the sweep."""
COPY_FILE = "sweep.copy.json"
"""The same again, should a disk spoil the first."""


def _with_working_folder(document: Document) -> Document:
    """Version 1 to 2: the folder where it was started, which the first sweeps did not say."""
    return {"working_folder": str(Path.cwd()), **document}


FORMAT = Format((_with_working_folder,))
"""The versions of ``sweep.json``."""


def save(plan: Plan) -> None:
    """Write what ``reopened`` reads; whole, or not at all."""
    document = FORMAT.stamped(
        {
            "name": plan.name,
            "command": plan.command,
            "working_folder": str(plan.working_folder),
            "composition": plan.composition.as_json(),
        }
    )
    for name in (SWEEP_FILE, COPY_FILE):
        write_json(plan.folder / name, document, indent=1)


def reopened(record: SweepRecord, changes: Mapping[str, Any], folder: Path | None = None) -> Plan:
    """The plan of an earlier sweep, to go on with.

    Args:
        record: The sweep.
        changes: What ``extend`` changes, by dotted path.
        folder: Where its folder is now; default: where it was.

    Raises:
        UserError: Its folder is not here, or the changes make no valid sweep.
        NewerVersion: A later release wrote what is in its folder.
    """
    was = Path(record.tags.get(TAG_FOLDER, ""))
    folder = was if folder is None else folder.expanduser().absolute()
    has_moved = not (was / SWEEP_FILE).exists()  # and was not copied, where the driver may be in the first one
    if folder != was and record.status == "running" and not has_died(folder if has_moved else was):
        raise UserError(
            f"{record.sweep} runs in {was}: its driver was heard of within the last {HEARTBEAT_TIMEOUT_S:.0f} s; end "
            f"it with `python -m sweeps stop {record.sweep}`, or wait if its machine is lost"
        )
    document = _read(record.sweep, folder)
    check_study(folder)
    check_journal(folder)
    working_folder = Path(document["working_folder"])
    if not working_folder.is_dir():  # on another machine
        working_folder = Path.cwd()
    uri = record.mlflow.tracking_uri
    # The URI that was written down has no password, and the store may have moved.
    before = Composition.from_json(document["composition"])
    before = before.recorded_at(uri if working_folder == Path.cwd() else absolute(uri))
    composition = extended(before, changes, record) if changes else before
    space = check_sweep(composition)
    return Plan(
        name=record.sweep,
        composition=composition,
        space=space,
        scalings=all_scalings(composition, space),
        command=document["command"],
        folder=folder,
        working_folder=working_folder,
    )


def saved(plan: Plan) -> Composition:
    """What the plan's sweep was when it was last saved."""
    return Composition.from_json(_read(plan.name, plan.folder)["composition"])


def _read(sweep: str, folder: Path) -> dict[str, Any]:
    """
    Raises:
        UserError: There is nothing that can be read.
        NewerVersion: A later release wrote it.
    """
    for name in (SWEEP_FILE, COPY_FILE):
        try:
            document: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if document["name"] != sweep:
            raise UserError(f"--folder={folder}: is the folder of {document['name']}, and not of {sweep}")
        return FORMAT.brought_forward(document, str(folder / name))
    raise UserError(
        f"{sweep}: its folder {folder} is not on this machine, or not whole (it lacks {SWEEP_FILE}); go on where it "
        "was started, or with its output_dir on storage that both machines share, or say with --folder where it is now"
    )
