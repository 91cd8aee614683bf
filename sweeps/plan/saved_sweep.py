"""Saved composition of a sweep in its folder, from which ``plan.resume`` makes the plan to continue with."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from sweeps.compose import Composition
from sweeps.config import SweepConfig
from sweeps.errors import UserError
from sweeps.files.checksums import parsed
from sweeps.files.versions import Document, Format
from sweeps.files.whole_files import write_json
from sweeps.folders.sweep_folder import COPY_FILE, SWEEP_FILE
from sweeps.plan.plan import Plan
from sweeps.storage.location import is_remote, working_copy

logger = logging.getLogger(__name__)


def _with_working_folder(document: Document) -> Document:
    """Convert version 1 to 2: add the folder in which the sweep was started."""
    return {"working_folder": str(Path.cwd()), **document}


FORMAT = Format((_with_working_folder,))
"""Versions of ``sweep.json``."""


def save(plan: Plan) -> None:
    """Write the files from which the sweep can be resumed, each atomically."""
    document = FORMAT.stamped(
        {
            "name": plan.name,
            "command": plan.command,
            "working_folder": str(plan.working_folder),
            "composition": plan.composition.as_json(),
        }
    )
    for name in (SWEEP_FILE, COPY_FILE):
        write_json(plan.folder / name, document, indent=1, checksum=True)


def saved_config(sweep: str, location: str) -> SweepConfig:
    """Return the config of a sweep of this machine as last saved, without making a plan. ``location`` is the path of
    its folder, or the URI in an object store.

    Raises:
        UserError: See ``saved_document``. NewerVersion: A later release wrote the file.
    """
    folder = working_copy(location) if is_remote(location) else Path(location)
    return Composition.from_json(saved_document(sweep, folder)["composition"]).config


def saved(plan: Plan) -> Composition:
    """Return the composition of the plan's sweep as last saved."""
    return Composition.from_json(saved_document(plan.name, plan.folder)["composition"])


def saved_document(sweep: str, folder: Path) -> dict[str, Any]:
    """Return the saved document of a sweep.

    Raises:
        UserError: No file can be read. NewerVersion: A later release wrote the file.
    """
    for name in (SWEEP_FILE, COPY_FILE):
        try:
            document = parsed((folder / name).read_bytes())
        except OSError:
            continue
        except ValueError as error:
            logger.warning("%s is damaged (%s)", folder / name, error)
            continue
        if document["name"] != sweep:
            raise UserError(f"--folder={folder}: is the folder of {document['name']}; give that of {sweep}")
        return FORMAT.brought_forward(document, str(folder / name))
    raise UserError(
        f"{sweep}: its folder {folder} is not on this machine, or is incomplete (it has no readable {SWEEP_FILE}); "
        "continue on the machine where it was started, or give the path of its folder with --folder"
    )
